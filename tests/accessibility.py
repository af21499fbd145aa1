"""What axe finds on a page in a browser. It comes with `npm install axe-core`, in the
repository or where `VMAPSEEDS_AXE` says.
"""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
AXE = Path(
  os.environ.get("VMAPSEEDS_AXE", ROOT / "node_modules" / "axe-core" / "axe.min.js")
)
needs_axe = pytest.mark.skipif(
  not AXE.exists(), reason="there is no axe: npm install axe-core"
)
FINDINGS = """async () => {
  const { violations } = await axe.run(document, { resultTypes: ["violations"] });
  return violations.flatMap(({ id, impact, nodes }) =>
    nodes.map(({ html }) => `${impact} ${id}: ${html.slice(0, 150)}`));
}"""


def findings(page) -> list[str]:
  """Return what axe finds: how grave, which rule, where."""
  page.add_script_tag(path=AXE)
  return page.evaluate(FINDINGS)
