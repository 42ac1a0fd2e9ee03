"""Values of a YAML file change, all else in it stays."""

import pytest
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from pipeline_src.tools.yaml_editor import YamlEditor, set_comment, set_title

TEXT = """\
# A study
# of something

a: # first
  b: # nothing
  c: '20260901'
  f:
  - - a text
    - 0.00001
  d: {x: 0.00005, y: [1, null]} # a map
  # a line of its own

e: true
"""


@pytest.mark.parametrize("text", [TEXT, "# long\na: {" + ", ".join(f"k{i}: text {i}" for i in range(40)) + "}\n"])
def test_a_file_that_is_not_changed_keeps_its_bytes(text):
    assert YamlEditor(text).dumps() == text


def test_values_and_comments_are_replaced_where_they_stand():
    editor = YamlEditor(TEXT)
    editor.values["a"].update(b=1234, c=DoubleQuotedScalarString("010"), f=[1, [2, "b"]])
    editor.values["a"]["d"]["y"][1] = 7
    set_title(editor.values, "Another")
    set_comment(editor.values, "a", "second")
    set_comment(editor.values["a"], "d", "changed")
    set_comment(editor.values, "e", "new")
    assert (
        editor.dumps()
        == """\
# Another
# of something

a: # second
  b: 1234 # nothing
  c: '010'
  f:
  - 1
  - - 2
    - b
  d: {x: 0.00005, y: [1, 7]} # changed
  # a line of its own

e: true # new
"""
    )
