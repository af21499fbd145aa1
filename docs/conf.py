"""How Sphinx makes the site: `python -m sphinx -W --keep-going -j auto docs build/site`.

It executes the notebooks with few runs, or takes them as they were executed from the
folder that `VMAPSEEDS_EXECUTED` names. It prints the help of every command, and fails if a
public name is missing from the reference or has no docstring.
"""

import inspect
import os
import re
import shutil
import tempfile
import urllib.request
from pathlib import Path

from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx import addnodes
from sphinx.transforms import SphinxTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode
from sphinx.util.typing import stringify_annotation

import vmapseeds
from vmapseeds import stats
from vmapseeds.commands import APP
from vmapseeds.reports.groups import Value, Where
from vmapseeds.results.statistics import STATISTICS as STATISTICS_BY_ROLE
from vmapseeds.stats._arrays import Given
from vmapseeds.store.files import Folder

HERE = Path(__file__).parent
EXECUTED = os.environ.get("VMAPSEEDS_EXECUTED")
NOTEBOOKS = Path(EXECUTED) if EXECUTED else HERE.parent / "notebooks"
ONE_ARRAY = r"(\w+)\[[~.\w]*(?:ndarray|Array), ('[^']*')\]"
ARRAYS = re.compile(
  rf"{ONE_ARRAY}(?: \| [~.\w]*\1\[[~.\w]*Array, \2\])?"
)  # of NumPy or JAX

# Written out, a signature would have eleven types where one is meant. Long ones first.
ALIASES = {
  stringify_annotation(alias, "smart"): name
  for name, alias in {
    "Where": Where,
    "ArrayLike": Given[""],
    "Folder": Folder,
    "Value": Value,
  }.items()
}
INVENTORIES = {  # of other projects, to whose types signatures lead
  "flax": "https://flax.readthedocs.io/en/latest/",
  "jax": "https://docs.jax.dev/en/latest/",
  "numpy": "https://numpy.org/doc/stable/",
  "optax": "https://optax.readthedocs.io/en/latest/",
  "pandas": "https://pandas.pydata.org/docs/",
  "python": "https://docs.python.org/3/",
  "xarray": "https://docs.xarray.dev/en/stable/",
}
SECONDS = 5  # to wait for each
AUTODOC = re.compile(r"\.\. auto(?:function|class):: vmapseeds\.stats\.(\w+)")
OVERVIEWS = ("reference/index", "reference/python", "reference/stats")

project = "vmapseeds"
copyright = "the vmapseeds authors"
release = version = vmapseeds.__version__
extensions = [
  "myst_nb",
  "sphinx.ext.autodoc",
  "sphinx.ext.autosummary",
  "sphinx.ext.intersphinx",
  "sphinx.ext.napoleon",
  "sphinx.ext.viewcode",
  "sphinx_copybutton",
]
exclude_patterns = ["programs/*/README.md"]
default_role = "code"
smartquotes = False  # -- begins a flag
python_maximum_signature_line_length = 80
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autosummary_generate = False  # lists only: pages are written
napoleon_use_rtype = False

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # the gallery's pages are generated
nb_execution_mode = "off" if EXECUTED else "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 600
os.environ.setdefault("VMAPSEEDS_RUNS", "32")  # the notebooks train so many

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
html_theme = "pydata_sphinx_theme"
html_title = "vmapseeds"
html_static_path = ["_static"]
html_search_scorer = str(HERE / "_static" / "scorer.js")
html_logo = html_favicon = "_static/logo.svg"
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
html_show_sourcelink = False
html_math_renderer = "mathml"
html_theme_options = {
  "logo": {"text": f"vmapseeds {version}"},
  "show_toc_level": 2,
  "header_links_before_dropdown": 6,
  "navigation_with_keys": False,
  "secondary_sidebar_items": ["page-toc"],
  "footer_start": ["copyright"],
  "footer_end": [],
}


def fetch_inventories(app, config):
  """Fetch the inventories of other projects, as far as they can be reached: without a
  network the site is built all the same, with fewer links.
  """
  folder = Path(tempfile.mkdtemp(prefix="inventories-"))
  app.connect("build-finished", lambda *_: shutil.rmtree(folder, ignore_errors=True))
  config.intersphinx_mapping = {}
  for name, address in INVENTORIES.items():
    path = folder / name
    try:
      with urllib.request.urlopen(f"{address}objects.inv", timeout=SECONDS) as answer:
        path.write_bytes(answer.read())
    except OSError:
      continue
    config.intersphinx_mapping[name] = (address, str(path))


def copy_notebooks(app, config):
  """Put the notebooks among the pages, where Sphinx looks for them."""
  for notebook in sorted(NOTEBOOKS.glob("*.ipynb")):
    shutil.copy(notebook, HERE / "tutorials" / notebook.name)


class Themes(SphinxTransform):
  """Put the dark form of a picture beside its light one: a page shows one of them."""

  default_priority = 500

  def apply(self):
    for light in list(self.document.findall(nodes.image)):
      if light["uri"].endswith("-light.svg"):
        dark = light.deepcopy()
        dark["uri"] = light["uri"].replace("-light.svg", "-dark.svg")
        light["classes"].append("only-light")
        dark["classes"].append("only-dark")
        light.parent.insert(light.parent.index(light) + 1, dark)


def index_keywords(app, doctree):
  """Let the search find a page first by each of the `keywords` of its front matter."""
  keywords = app.env.metadata[app.env.docname].get("keywords")
  if keywords:
    entries = [("single", word, "", "main", None) for word in keywords.split(", ")]
    doctree.insert(0, addnodes.index(entries=entries))


class Commands(SphinxDirective):
  """`{commands}`: a section for each command, with its flags and what they do."""

  def run(self):
    text = APP.generate_docs(output_format="markdown")
    first = text.index("## vmapseeds ")
    return self.parse_text_to_nodes(text[first:], allow_section_headings=True)


def groups_of(page: str) -> list[list[str]]:
  """Return the names of each section of a page on statistics."""
  text = (HERE / "reference" / f"{page}.md").read_text(encoding="utf-8")
  return [AUTODOC.findall(section) for section in text.split("\n## ")[1:]]


# Those of a section are worth a look together.
STATISTICS = sorted(path.stem for path in HERE.glob("reference/stats_*.md"))
GROUPS = [group for page in STATISTICS for group in groups_of(page)]


class Names(SphinxDirective):
  """`{names} PAGE`: the statistics of a page of the reference, and a line on each."""

  required_arguments = 1

  def run(self):
    (page,) = self.arguments
    self.env.note_dependency(str(HERE / "reference" / f"{page}.md"))
    names = [name for group in groups_of(page) for name in group]
    lines = [
      ".. currentmodule:: vmapseeds.stats",
      ".. autosummary::",
      "   :nosignatures:",
    ]
    lines += ["", *[f"   {name}" for name in names]]
    text = "\n".join(["```{eval-rst}", *lines, "```"])
    return self.parse_text_to_nodes(text)


def add_see_also(app, what, name, of, options, lines):
  """Name the other functions of a statistic's section below its docstring."""
  short = name.rpartition(".")[2]
  for group in GROUPS:
    if name == f"vmapseeds.stats.{short}" and short in group:
      others = [other for other in group if other != short and other.islower()]
      links = ", ".join(f":func:`~vmapseeds.stats.{other}`" for other in others)
      lines += ["", f"See also: {links}", ""]


class ReportedStatistics(SphinxDirective):
  """`{reported-statistics}`: a table of what reports print, a row for each definition,
  whatever the number of a run is called.
  """

  def run(self):
    units = {"unit": "the output's", "unit²": "its square"}
    names: dict[tuple, dict] = {}
    roles: dict[tuple, dict] = {}
    for role, rows in STATISTICS_BY_ROLE.items():
      for row in rows:
        definition = definition_of_any_role(row.definition, role)
        rest = (units.get(row.unit, row.unit), row.over or "", definition)
        # Each name and role once, in the order in which they come.
        names.setdefault(rest, {})[f"`{row.name}`"] = None
        roles.setdefault(rest, {})[role] = None
    lines = ["| `--until`, JSON | of | unit | over | definition |", f"|{'---|' * 5}"]
    for rest in names:
      cells = (", ".join(names[rest]), ", ".join(roles[rest]), *rest)
      lines.append(f"| {' | '.join(cells)} |")
    return self.parse_text_to_nodes("\n".join(lines))


def definition_of_any_role(definition: str, role: str) -> str:
  """Return a statistic's definition with one word for a run's accuracy, loss or score."""
  noun = {"class": "accuracy"}.get(role, role)
  pattern = rf"\b(the runs'|the|highest|lowest) (mean )?{noun}\b"
  text = re.sub(pattern, r"\1 number", definition)
  text = re.sub(r"\bindependent-losses\b", "independent-errors", text)
  text = text.replace("of the losses on", "of the errors on")
  return text.replace("|", r"\|")


class Programs(SphinxDirective):
  """`{programs}`: a section with the text of each program of docs/programs."""

  def run(self):
    sections = []
    for path in sorted((HERE / "programs").rglob("*.py")):
      name = str(path.relative_to(HERE / "programs"))
      self.env.note_dependency(str(path))
      section = nodes.section(ids=[nodes.make_id(name)], names=[name])
      section += nodes.title(text=name)
      text = path.read_text(encoding="utf-8")
      section += nodes.literal_block(text, text, language="python")
      sections.append(section)
    return sections


def public_names() -> dict[str, object]:
  """Return what a user may import: the names of `vmapseeds` and of `vmapseeds.stats`."""
  names = {f"vmapseeds.{name}": getattr(vmapseeds, name) for name in vmapseeds.__all__}
  names |= {f"vmapseeds.stats.{name}": value for name, value in vars(stats).items()}
  return {
    name: value
    for name, value in names.items()
    if not (name.rpartition(".")[2].startswith("_") or inspect.ismodule(value))
  }


def link_names(app, doctree, page):
  """Make names of the reference in the text, such as `errors` or `vs.tally`, links."""
  described = app.env.get_domain("py").objects
  # Of docstrings each word would be a link.
  if page.startswith("reference/") and page not in OVERVIEWS:
    return
  for node in list(doctree.findall(nodes.literal)):
    name = node.astext().removesuffix("()")
    found = described.get(
      f"vmapseeds.{name.removeprefix('vs.')}"
      if name.startswith(("vs.", "stats."))
      else f"vmapseeds.stats.{name}"
    )
    # A link to a page has an inline between itself and its text.
    around = (node.parent, node.parent.parent)
    inside = any(isinstance(parent, nodes.reference | nodes.title) for parent in around)
    if found and found.docname.startswith("reference/") and not inside:
      to = found.docname, found.node_id
      node.replace_self(make_refnode(app.builder, page, *to, node.deepcopy()))


def check_reference(app, env):
  """Warn of each public name that the reference lacks, or that says nothing of itself."""
  said = logging.getLogger(__name__)
  described = env.get_domain("py").objects
  for name, value in public_names().items():
    if name not in described:
      said.warning("%s is public and not in the reference", name)
    text = inspect.getdoc(value) or ""
    if not text or text.startswith(f"{value.__name__}("):  # a tuple's own
      said.warning("%s is public and has no docstring", name)


def escape_bars(app, what, name, of, options, lines):
  """Keep reStructuredText from taking |x| in a docstring for a substitution."""
  for i, line in enumerate(lines):
    if not re.match(r" *(>>>|\.\.\.)", line):
      parts = line.split("`")
      lines[i] = "`".join(
        part.replace("|", r"\|") if j % 2 == 0 else part for j, part in enumerate(parts)
      )


def shorten_signature(app, what, name, of, options, signature, returned):
  """Leave the rules of annotated fields out of a signature, and which library has an
  array.
  """
  if "Annotated[" in (signature or ""):
    given = inspect.signature(of)
    bare = [p.replace(annotation=p.empty) for p in given.parameters.values()]
    return str(inspect.Signature(bare)), returned
  return tuple(text and with_short_types(text) for text in (signature, returned))


def with_short_types(signature: str) -> str:
  """Return a signature with the names of types that stand for many."""
  for text, name in ALIASES.items():
    signature = signature.replace(text, name)
  return ARRAYS.sub(r"\1[Array, \2]", signature)


def skip_fields(app, what, name, of, skip, options):
  """Leave out fields of named tuples, which have no docstrings of their own."""
  return True if type(of).__name__ == "_tuplegetter" else None


def write_math(block: bool):
  """Return a writer of formulas as MathML, which browsers show without a script."""

  def visit(translator, node):
    translator.body.append(latex2mathml.tex2mathml(node.astext(), as_block=block))
    raise nodes.SkipNode

  return visit, None


def setup(app):
  app.connect("config-inited", copy_notebooks)
  # Before intersphinx looks at them.
  app.connect("config-inited", fetch_inventories, priority=100)
  app.connect("doctree-read", index_keywords)
  app.connect("env-check-consistency", check_reference)
  app.connect("doctree-resolved", link_names)
  app.connect("autodoc-skip-member", skip_fields)
  app.connect("autodoc-process-signature", shorten_signature)
  app.connect("autodoc-process-docstring", escape_bars)
  app.connect("autodoc-process-docstring", add_see_also)
  app.add_transform(Themes)
  app.add_directive("commands", Commands)
  app.add_directive("names", Names)
  app.add_directive("programs", Programs)
  app.add_directive("reported-statistics", ReportedStatistics)
  app.add_html_math_renderer("mathml", write_math(False), write_math(True))
  return {"parallel_read_safe": True, "parallel_write_safe": True}
