package docblock

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const page = `# Page
~~~sh stopped
app a \
  --b

# a comment
app c
~~~

~~~
done
~~~
1. In a list:
   ~~~sh azure
   app d
   ~~~
~~~
$ app e
one
two
$ app f
~~~
<!-- sh
app g
-->
The end.
`

func TestRead_FindsBlocksWithTheirCommandsAndOutput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(page, "~~~", "```")), 0o600); err != nil {
		t.Fatal(err)
	}

	blocks, prose, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []Block{
		{Page: "page.md", Line: 3, Language: "sh", Marks: []string{"stopped"}, Text: "app a \\\n  --b\n\n# a comment\napp c\n"},
		{Page: "page.md", Line: 11, Text: "done\n", Output: true},
		{Page: "page.md", Line: 15, Language: "sh", Marks: []string{"azure"}, Text: "app d\n"},
		{Page: "page.md", Line: 18, Text: "$ app e\none\ntwo\n$ app f\n"},
		{Page: "page.md", Line: 24, Language: "sh", Marks: []string{}, Text: "app g\n", Hidden: true},
	}
	if diff := cmp.Diff(want, blocks); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"# Page", "", "1. In a list:", "The end."}, prose); diff != "" {
		t.Errorf("prose (-want +got):\n%s", diff)
	}
	var commands []Command
	executed := ""
	for _, b := range blocks {
		commands = append(commands, b.Commands()...)
		if b.Executed() {
			executed += string(b.Text[len(b.Text)-2])
		}
	}
	wantCommands := []Command{{Text: "app a    --b"}, {Text: "app c"}, {Text: "app d"}, {Text: "app e", Output: "one\ntwo\n"}, {Text: "app f"}, {Text: "app g"}}
	if diff := cmp.Diff(wantCommands, commands); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
	if executed != "cfg" {
		t.Errorf("the blocks that end with %q are executed, want c, f and g", executed)
	}
}

func TestRead_RefusesABlockWithoutAnEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte("```sh\napp\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Read(path); err == nil {
		t.Error("no error")
	}
}
