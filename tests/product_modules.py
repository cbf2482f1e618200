"""The modules of xfbench, and the names that their syntax trees import and use."""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = {
    "xfbench": "xfbench",
    "xfbench.adapters": "adapters",
    "xfbench.launchers": "launchers",
    "xfbench.workloads": "workloads",
}


def find_modules():
    """Return the files of all modules of xfbench by importable name."""
    files = {}
    for package, folder in FOLDERS.items():
        for file in sorted((ROOT / folder).rglob("*.py")):
            parts = file.relative_to(ROOT / folder).with_suffix("").parts
            files[".".join((package, *parts)).removesuffix(".__init__")] = file
    return files


MODULES = find_modules()


def find_imports(tree, module):
    """Yield the full dotted names of all imports; placeholders in a name become `*`."""
    file = MODULES.get(module)
    package = module if file and file.stem == "__init__" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*parents, node.module or ""]) if node.level else node.module
            yield from (f"{base.rstrip('.')}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
            ("import_module", "__import__")
        ):
            yield from (name for arg in node.args[:1] if (name := string_value(arg, module)))


def string_value(node, module):
    """Return a literal string, with `*` for placeholders of an f-string; "" if it is no string."""
    if isinstance(node, ast.JoinedStr):
        return "".join(string_value(value, module) or "*" for value in node.values)
    if isinstance(node, ast.FormattedValue) and ast.unparse(node.value) == "__name__":
        return module
    is_string = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return node.value if is_string else ""


def find_names(tree, module):
    """Yield the full names of all imports and of attributes that are reached through them."""
    yield from find_imports(tree, module)
    full_names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            full_names |= {
                a.asname or a.name.partition(".")[0]: a.name for a in node.names if a.asname
            }
        elif isinstance(node, ast.ImportFrom) and not node.level:
            full_names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            first, _, rest = ast.unparse(node).partition(".")
            yield f"{full_names.get(first, first)}.{rest}"


def has_prefix(name, prefixes):
    """Return whether `name` starts with a prefix, as os.execv starts with os.exec."""
    return name.startswith(tuple(prefixes))
