"""Finds code that reads a sentence, and imports by a text that hide who imports whom.

A sentence is a view of fields: code that needs a fact reads the field. `make structure` prints both figures,
`make check` holds them at 0.

Sentences are the fields and names of `SENTENCES`, the text of an exception, and what is bound to these in the
same function: by assignment, a loop, an unpacked tuple, a call that only changes white space or case, an
f-string. To read one is to look for words in it (`in`, `startswith`, `partition`, `replace`, a regular
expression, ...) or to compare it with a text of several words. To cut it to one line or to a length, and to
trim white space or a full stop, is layout.

The text of another library may have to be classified, where it says in no other way what happened: each
such function is in `FOREIGN`, with the reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

SENTENCES: Final = frozenset(
    [
        "why",
        "own_why",
        "reason",
        "message",
        "problem",
        "what",
        "fix",
        "note",
        "finding",
        "hint",
        "detail",
        "traceback",
        "nothing_ran",
    ]
)
LISTS: Final = frozenset(("notes", "findings", "warnings", "hints", "fixes", "problems"))
"""Collections of sentences: their elements are sentences."""
ERRORS: Final = frozenset(("error", "exc", "exception", "cause"))
"""Names that exceptions have, beside those that an `except` binds."""
READS: Final = frozenset(
    [
        "partition",
        "rpartition",
        "split",
        "rsplit",
        "removeprefix",
        "removesuffix",
        "startswith",
        "endswith",
        "replace",
        "find",
        "rfind",
        "index",
        "rindex",
        "count",
        "translate",
    ]
)
KEEPS: Final = frozenset(("strip", "lstrip", "rstrip", "lower", "upper", "casefold", "splitlines", "join"))
"""Methods whose result is the sentence still; to trim more than white space is to read it."""
MATCHES: Final = frozenset(("search", "match", "fullmatch", "findall", "finditer", "sub", "subn"))
WRAPPERS: Final = frozenset(("iter", "sorted", "list", "tuple", "reversed", "set"))
FOREIGN: Final = {
    "raysweep.cli.process:_call": "pydantic's words inside typer's message",
    "raysweep.cluster.ray.connection:_started": "Ray names a missing token in its text alone",
    "raysweep.cluster.ray.nodes:state_of_node": "Ray names a dead node in its text alone",
    "raysweep.raycompat.train:start_problem": "Ray lists ids, and a traceback, in its text",
    "raysweep.storage.objects.refusals:refusal_of": "obstore gives status and code in its text alone",
    "raysweep.worker.gang.surroundings:is_echo": "torch and NCCL name a lost peer in their text alone",
    "raysweep.worker.process.libraries:find_broken": "CUDA errors are plain RuntimeErrors",
    "raysweep.errors.runs:_OutcomeError.__str__": "for a person alone: says no message twice",
    "raysweep.jobs.client:_failed": "OpenSSL's code of an alert",
    "raysweep.outcome.record:ErrorInfo.where": "the lines of a traceback are Python's own form",
    "raysweep.step.verdict:_place_of": "the lines of a traceback are Python's own form",
    "raysweep_airflow.documents:template_error": "Jinja names what is undefined in its text alone",
    "raysweep_prefect.clusters:load_cluster": "Prefect raises a plain ValueError where there is no block",
    "raysweep_prefect.hooks:is_aborted": "Prefect tells an aborted run in its state's message alone",
}
"""Functions that classify text of another program or library, and why they have to."""
REGISTRIES: Final = {
    "raysweep": "public names, imported when they are first used",
    "raysweep.jobs": "public names, imported when they are first used",
    "raysweep.specs": "public names, imported when they are first used",
    "raysweep_airflow": "public names, imported when they are first used",
    "raysweep_prefect": "public names, imported when they are first used",
    "raysweep.documents.kinds": "kinds of a field, by the registries of their rooms",
    "raysweep.documents.code.trainable": "the user's code, by the name in a spec",
    "raysweep.faultplan.faults": "classes of errors, by the name in a plan",
    "raysweep.raycompat.in_trial.dataplace": "Ray's own modules, by names in one table",
    "raysweep.raycompat.preemption": "Ray's own modules, which differ by version",
    "raysweep.worker.gang.surroundings": "frameworks, by the name in the spec",
    "raysweep.worker.process.fork_server": "modules that trials will import",
    "raysweep.worker.runner": "the user's code, by the name in a spec",
    "raysweep.worker.tracking": "functions of trackers, by the names in the setup",
    "raysweep_airflow.compat": "Airflow's own modules, which differ by version",
}
"""Modules that import by a name that is not written there, and what they import."""


def reads_of(name: str, tree: ast.Module) -> Iterator[str]:
    """The places where a module reads a sentence: `module:function:line: code`."""
    for where, function in _functions(tree, ()):
        place = f"{name}:{where}"
        if place not in FOREIGN:
            for node in _Function(function).reads():
                yield f"{place}:{node.lineno}: {ast.unparse(node)[:80]}"


def hidden_imports(name: str, tree: ast.Module, packages: Iterable[str]) -> Iterator[str]:
    """Calls of `import_module` outside registries, but for a module of others that is named there."""
    if name in REGISTRIES:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in (
            "import_module",
            "__import__",
        ):
            given = node.args[0] if node.args else None
            is_foreign = (
                isinstance(given, ast.Constant) and str(given.value).partition(".")[0] not in packages
            )
            if not is_foreign:
                yield f"{name}:{node.lineno}: {ast.unparse(node)[:80]}"


def _functions(tree: ast.AST, path: tuple[str, ...]) -> Iterator[tuple[str, ast.AST]]:
    """Each function with its dotted name, and the module itself, whose functions are left out of it."""
    yield ".".join(path), tree
    stack: list[tuple[ast.AST, tuple[str, ...]]] = [(tree, path)]
    while stack:
        node, names = stack.pop()
        for child in ast.iter_child_nodes(node):
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = (*names, child.name)
                if is_function:
                    yield ".".join(inner), child
                stack.append((child, inner))
            else:
                stack.append((child, names))


class _Function:
    """The sentences of one function, without those of the functions in it."""

    def __init__(self, function: ast.AST) -> None:
        self._nodes = list(_own_nodes(function))
        self._errors = {
            node.name for node in self._nodes if isinstance(node, ast.ExceptHandler) and node.name
        }
        self._bound: set[str] = set()
        self._lists: set[str] = set()
        known = -1
        while known != len(self._bound) + len(self._lists):
            known = len(self._bound) + len(self._lists)
            self._bind()

    def reads(self) -> Iterator[ast.expr]:
        """The expressions that read a sentence."""
        calls = [node for node in self._nodes if isinstance(node, ast.Call)]
        layout = {id(node.args[0]) for node in calls if _is_join(node)}
        for node in self._nodes:
            if isinstance(node, ast.Call):
                if id(node) not in layout and self._is_read(node):
                    yield node
            elif isinstance(node, ast.Compare) and self._compares(node):
                yield node

    def _is_read(self, node: ast.Call) -> bool:
        if not isinstance(node.func, ast.Attribute):
            return False
        method, of = node.func.attr, node.func.value
        if method in MATCHES:
            return any(map(self._is_sentence, node.args))
        if method in ("strip", "lstrip", "rstrip"):
            is_layout = not node.args or ast.unparse(node.args[0]) == "'.'"
            return not is_layout and self._is_sentence(of)
        return method in READS and self._is_sentence(of)

    def _compares(self, node: ast.Compare) -> bool:
        for left, operator, right in zip(
            [node.left, *node.comparators], node.ops, node.comparators, strict=False
        ):
            if isinstance(operator, ast.In | ast.NotIn) and self._is_sentence(right):
                return True
            words = [each.value for each in (left, right) if isinstance(each, ast.Constant)]
            if any(isinstance(each, str) and " " in each for each in words):
                return self._is_sentence(left) or self._is_sentence(right)
        return False

    def _is_sentence(self, node: ast.expr) -> bool:
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name) if name in SENTENCES:
                return True
            case ast.Name(id=name):
                return name in self._bound
            case ast.Subscript(value=of, slice=ast.Constant(value=str(key))):
                return key in SENTENCES
            case ast.Subscript(value=of):
                return self._is_sentence(of) or self._is_list(of)
            case ast.JoinedStr(values=parts):
                return any(
                    isinstance(each, ast.FormattedValue) and self._is_text(each.value) for each in parts
                )
            case ast.NamedExpr(value=value):
                return self._is_sentence(value)
            case ast.BoolOp(values=parts):
                return any(map(self._is_sentence, parts))
            case ast.IfExp(body=first, orelse=second):
                return self._is_sentence(first) or self._is_sentence(second)
            case ast.BinOp(left=first, right=second):
                return self._is_sentence(first) or self._is_sentence(second)
            case ast.Call():
                return self._is_call(node)
        return False

    def _is_call(self, node: ast.Call) -> bool:
        match node.func:
            case ast.Name(id="str" | "message_of" | "repr") if node.args and self._is_error(node.args[0]):
                return True
            case ast.Name(id="next"):
                return any(map(self._is_list, node.args))
            case ast.Name(id="str" | "one_line"):
                return any(map(self._is_sentence, node.args))
            case ast.Attribute(attr="get") if node.args and isinstance(node.args[0], ast.Constant):
                return node.args[0].value in SENTENCES
            case ast.Attribute(attr="format_message"):
                return True
            case ast.Attribute(value=of, attr=method):
                is_kept = method in KEEPS or method in READS
                return is_kept and (self._is_sentence(of) or any(map(self._is_sentence, node.args)))
        return False

    def _is_text(self, node: ast.expr) -> bool:
        return self._is_sentence(node) or self._is_error(node)

    def _is_error(self, node: ast.expr) -> bool:
        match node:
            case ast.Name(id=name):
                return name in self._errors or name in ERRORS
            case ast.Attribute(attr=name):
                return name in ERRORS
        return False

    def _is_list(self, node: ast.expr) -> bool:
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name) if name in LISTS or name in self._lists:
                return True
            case ast.GeneratorExp(elt=element) | ast.ListComp(elt=element):
                return self._is_sentence(element)
            case ast.Call(func=ast.Name(id=name), args=given) if name in WRAPPERS:
                return any(map(self._is_list, given))
        return self._is_sentence(node)

    def _bind(self) -> None:
        for node in self._nodes:
            match node:
                case ast.Assign(targets=targets, value=value):
                    self._assign(targets, value)
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    self._assign([target], value)
                case ast.NamedExpr(target=target, value=value):
                    self._assign([target], value)
                case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                    if self._is_list(value):
                        self._bound.update(_names([target]))

    def _assign(self, targets: Sequence[ast.expr], value: ast.expr) -> None:
        if isinstance(value, ast.Tuple) and isinstance(targets[0], ast.Tuple):
            for target, part in zip(targets[0].elts, value.elts, strict=False):
                self._assign([target], part)
        elif self._is_sentence(value):
            self._bound.update(_names(targets))
        elif self._is_list(value):
            self._lists.update(_names(targets))


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    stack = list(ast.iter_child_nodes(function))
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            stack.extend(ast.iter_child_nodes(node))


def _is_join(node: ast.Call) -> bool:
    """True if it is `" ".join(text.split())`, by which white space becomes one space."""
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Constant(value=" "), attr="join"),
            args=[ast.Call(func=ast.Attribute(attr="split"), args=[])],
        ):
            return True
    return False


def _names(targets: Iterable[ast.expr]) -> Iterator[str]:
    for target in targets:
        match target:
            case ast.Name(id=name):
                yield name
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                yield from _names(parts)
