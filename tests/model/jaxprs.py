"""Looking into a traced program."""

import jax


def equations(jaxpr):
    """Every equation of a jaxpr and of the jaxprs inside it."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=is_jaxpr):
            if is_jaxpr(inner):
                yield from equations(getattr(inner, "jaxpr", inner))


def is_jaxpr(value):
    return hasattr(value, "eqns") or hasattr(getattr(value, "jaxpr", None), "eqns")


def traced(function, *arguments):
    """The equations of `function`, as a list."""
    return list(equations(jax.make_jaxpr(function)(*arguments).jaxpr))


def count(function, primitive, *arguments):
    return sum(equation.primitive.name == primitive for equation in traced(function, *arguments))


def random_bits(function, *arguments):
    """How many random numbers of 32 bits or fewer the program draws."""
    drawn = [e for e in traced(function, *arguments) if e.primitive.name in ("random_bits", "threefry2x32")]
    return sum(e.outvars[0].aval.size for e in drawn)
