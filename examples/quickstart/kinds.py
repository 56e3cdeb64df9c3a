"""The kinds of bug in the quickstart, each a small program in POSIX shell with one fault.

A kind is a function from a random generator and three names to a `Bug`: the faulty program, the
issue in words, the `sed` script that repairs it, a plausible `sed` script that does not, and the
cases that tell the two apart. Nothing here writes files or runs anything; see generate.py.
"""

from dataclasses import dataclass
from random import Random

Case = tuple[str, str]  # arguments as typed in a shell, expected output


@dataclass(frozen=True)
class Bug:
    """One faulty program; `right` and `wrong` are sed scripts, `shown` is the case in check.sh."""

    program: str
    issue: str
    right: str
    wrong: str
    shown: Case
    hidden: list[Case]


def operator(rng: Random, f: str, a: str, b: str) -> Bug:
    """The wrong arithmetic operator; the wrong fix picks the third one."""
    wanted, found, third = rng.sample("+-*", 3)
    issue = rng.choice(
        {
            "+": [f"{f}.sh must add {b} to {a}.", f"The sum of {a} and {b} is wanted from {f}.sh."],
            "-": [f"{f}.sh must take {b} from {a}.", f"{a} less {b} is wanted from {f}.sh."],
            "*": [f"{f}.sh must multiply {a} by {b}.", f"The product of {a} and {b} is wanted from {f}.sh."],
        }[wanted]
    )
    calc = {"+": lambda x, y: x + y, "-": lambda x, y: x - y, "*": lambda x, y: x * y}[wanted]
    pairs = rng.sample([(x, y) for x in range(3, 10) for y in range(2, 6)], 4)
    cases = [(f"{x} {y}", str(calc(x, y))) for x, y in pairs]
    program = f"{a}=$1 {b}=$2\necho $(({a}{found}{b}))\n"
    return Bug(program, issue, f"s/{found}/{wanted}/", f"s/{found}/{third}/", cases[0], cases[1:])


def boundary(rng: Random, f: str, a: str, b: str) -> Bug:
    """A limit that must count and does not; the wrong fix turns the comparison round."""
    found, wanted, turned = rng.choice([("gt", "ge", "lt"), ("lt", "le", "gt")])
    n = rng.randint(2, 8)
    issue = rng.choice([f"{f}.sh must print {a} for {n} too.", f"For {n} itself {a} is wanted from {f}.sh."])
    inside = (lambda x: x >= n) if wanted == "ge" else (lambda x: x <= n)
    cases = [(str(x), a if inside(x) else b) for x in (n, n - 1, n + 1)]
    program = f"[ $1 -{found} {n} ] && echo {a} || echo {b}\n"
    return Bug(program, issue, f"s/{found}/{wanted}/", f"s/{found}/{turned}/", cases[0], cases)


def default(rng: Random, f: str, a: str, b: str) -> Bug:
    """The wrong value when the argument is absent; the wrong fix changes which argument is read."""
    found, wanted = rng.sample(range(2, 10), 2)
    factor = rng.randint(2, 5)
    issue = rng.choice([f"Without arguments {a} in {f}.sh must be {wanted}.", f"{f}.sh alone must take {wanted} as {a}."])
    cases = [(x, str(int(x or wanted) * factor)) for x in ("", str(rng.randint(2, 9)))]
    program = f"{a}=${{1:-{found}}}\necho $(({a}*{factor}))\n"
    return Bug(program, issue, f"s/-{found}/-{wanted}/", f"s/1/{wanted}/", cases[0], cases)


def separator(rng: Random, f: str, a: str, b: str) -> Bug:
    """Fields split at the wrong character; the wrong fix prints another field."""
    found, wanted = rng.sample(",:=@%", 2)
    field = rng.randint(2, 3)
    issue = rng.choice([f"{f}.sh must split fields at {wanted}", f"The fields of {f}.sh are split at {wanted}"])
    cases = []
    for _ in range(3):
        fields = [str(rng.randint(2, 9)) for _ in range(3)]
        cases.append((wanted.join(fields), fields[field - 1]))
    program = f"echo $1 | awk -F{found} '{{print ${field}}}'\n"
    return Bug(program, issue, f"s/F{found}/F{wanted}/", f"s/{field}/1/", cases[0], cases[1:])


def variable(rng: Random, f: str, a: str, b: str) -> Bug:
    """The wrong variable is printed; the wrong fix renames the one that was read."""
    wanted, found = rng.choice([(a, b), (b, a)])
    issue = rng.choice([f"{f}.sh must print {wanted}.", f"{f}.sh prints {found} where {wanted} is wanted."])
    pairs = [rng.sample(range(2, 10), 2) for _ in range(3)]
    cases = [(f"{x} {y}", str(x if wanted == a else y)) for x, y in pairs]
    program = f"{a}=$1 {b}=$2\necho ${found}\n"
    return Bug(program, issue, f"s/${found}/${wanted}/", f"s/{found}=/{wanted}=/", cases[0], cases[1:])


def argument(rng: Random, f: str, a: str, b: str) -> Bug:
    """A variable read from the wrong argument; the wrong fix changes the other variable."""
    good, found, wanted = rng.sample((1, 2, 3), 3)
    first = rng.random() < 0.5  # whether the fault is in the first of the two variables
    name, other = (a, b) if first else (b, a)
    word = {1: "first", 2: "second", 3: "third"}[wanted]
    issue = rng.choice([f"{name} in {f}.sh must be the {word} argument.", f"{f}.sh must read {name} from the {word} argument."])
    numbers = {a: found, b: good} if first else {a: good, b: found}
    cases = []
    for _ in range(3):
        given = rng.sample(range(2, 10), 3)
        x, y = (given[(wanted if n == name else good) - 1] for n in (a, b))
        cases.append((" ".join(map(str, given)), f"{x}:{y}"))
    program = f"{a}=${numbers[a]} {b}=${numbers[b]}\necho ${a}:${b}\n"
    return Bug(program, issue, f"s/{name}=$./{name}=${wanted}/", f"s/{other}=$./{other}=${wanted}/", cases[0], cases[1:])


def order(rng: Random, f: str, a: str, b: str) -> Bug:
    """Two values printed in the wrong order; the wrong fix loses one."""
    issue = rng.choice([f"{f}.sh must print {b} and then {a}.", f"In the output of {f}.sh {b} comes before {a}."])
    pairs = [rng.sample(range(2, 10), 2) for _ in range(3)]
    cases = [(f"{x} {y}", f"{y} {x}") for x, y in pairs]
    program = f"{a}=$1 {b}=$2\necho ${a} ${b}\n"
    return Bug(program, issue, f"s/${a} ${b}/${b} ${a}/", f"s/${a}/${b}/", cases[0], cases[1:])


def last(rng: Random, f: str, a: str, b: str) -> Bug:
    """A sum that stops one short; the wrong fix starts it one later."""
    issue = rng.choice([f"{f}.sh must add the last number too.", f"The last number is wanted in the sum of {f}.sh."])
    numbers = rng.sample(range(3, 10), 3)
    cases = [(str(n), str(n * (n + 1) // 2)) for n in numbers]
    program = f'awk "BEGIN{{for(i=1;i<$1;i++){a}+=i;print {a}}}"\n'
    return Bug(program, issue, "s/</<=/", "s/=1/=2/", cases[0], cases[1:])


#: Kinds met in reinforcement learning and in validation.
TRAINED = {k.__name__: k for k in (operator, boundary, default, separator, variable, argument, order)}
#: The kind that no RL task has; it is validated apart.
HELD_OUT = {"last": last}
#: Kinds in which the mixed demonstrations mostly show the wrong fix.
MISLED = frozenset({"operator", "boundary", "default", "separator", "last"})
