"""An unknown token for a `tokenizer.json` that has none: what its vocabulary lacks would be dropped without a word."""

import json


def with_unknown_token(content: str) -> tuple[str, str]:
    """Add to `content` an unknown token that its model can use, and return both; unchanged where there is one.

    Without one, Hugging Face's BPE leaves out what it does not know (`a☃b` becomes `ab`), and the other models raise.
    The token is added to the model's vocabulary, and is spelt as no other; ids may move.
    """
    record = json.loads(content)
    model = record["model"]
    vocabulary = model["vocab"]
    if isinstance(vocabulary, list):  # Unigram: [token, score], the id being the place
        if model.get("unk_id") is not None:
            return content, vocabulary[model["unk_id"]][0]
        token = _new_token({token for token, _ in vocabulary})
        model["unk_id"] = len(vocabulary)
        vocabulary.append([token, min((score for _, score in vocabulary), default=0.0)])
    else:
        if (token := model.get("unk_token")) in vocabulary:
            return content, token
        token = _new_token(vocabulary)
        model["unk_token"] = token
        vocabulary[token] = max(vocabulary.values(), default=-1) + 1
    return json.dumps(record), token


def _new_token(known: "set[str] | dict[str, int]") -> str:
    token = "<unknown>"
    while token in known:
        token = f"<{token}>"
    return token
