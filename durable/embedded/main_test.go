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

// children maps the value of an environment variable to the function that this program runs as the
// child of a test. Some entries are added only on some operating systems.
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
	// Run more tests in parallel than there are processors, because most of them wait.
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("8") // a number in the valid range
	}
	os.Exit(m.Run())
}

// A child is this program running in another process.
type child struct {
	*exec.Cmd
	out *bufio.Scanner
	err strings.Builder
}

// startChild starts a child process, which is killed at the end of the test.
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

// kill kills the child.
func (c *child) kill() {
	_ = c.Process.Kill() // fails only if it has ended
	_ = c.Wait()         // returns an error because it was killed
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
