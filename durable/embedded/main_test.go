package embedded_test

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// children are what this program does as the child of a test, by the value of
// an environment variable. Some are added where the operating system allows.
var children = map[string]func(path string) error{
	"hold":    holdHub,
	"torture": tortureHub,
	"backups": backUpHub,
}

const childVariable = "EMBEDDED_TEST_CHILD"

func TestMain(m *testing.M) {
	if role, path, ok := strings.Cut(os.Getenv(childVariable), " "); ok {
		if err := children[role](path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// More tests run at a time than there are processors, since they mostly wait.
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("8") // a number in range
	}
	os.Exit(m.Run())
}

// A child is this program in another process.
type child struct {
	*exec.Cmd
	out *bufio.Scanner
	err strings.Builder
}

// startChild starts a child, which is killed when the test ends.
func startChild(t *testing.T, role, path string) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{Cmd: exec.Command(self)}
	c.Env = append(os.Environ(), childVariable+"="+role+" "+path)
	c.Stderr = &c.err
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewScanner(out)
	c.out.Buffer(nil, 1<<20)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	return c
}

// kill ends the child without its having a say.
func (c *child) kill() {
	_ = c.Process.Kill() // fails only if it has ended
	_ = c.Wait()         // reports that it was killed
}

// line returns the next line of the child's output.
func (c *child) line(t *testing.T) string {
	t.Helper()
	if !c.out.Scan() {
		c.kill()
		t.Fatalf("the child ended: %v\n%s", c.out.Err(), c.err.String())
	}
	return c.out.Text()
}
