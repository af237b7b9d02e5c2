//go:build unix

package azuritetest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
)

// The test runs itself in a child process that starts Azurite. It then kills the child's process group, as
// scripts/test does at the end of each test process.
func TestStart_StopsAzuriteAndRemovesItsDataWhenTheTestProcessIsKilled(t *testing.T) {
	if os.Getenv("AZURITETEST_CHILD") != "" {
		fmt.Printf("%s\n%s\n", Start(t), shared.dir)
		select {}
	}
	Start(t) // skips the test if Azurite is not available
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "AZURITETEST_CHILD=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	if !lines.Scan() || !strings.Contains(lines.Text(), "TableEndpoint") {
		t.Fatalf("the child wrote %q, %v", lines.Text(), lines.Err())
	}
	endpoint := between(lines.Text(), "TableEndpoint=http://", "/")
	if !answers(endpoint) {
		t.Fatalf("no process listens on %s", endpoint)
	}
	lines.Scan()
	dir := lines.Text()
	if _, err := os.Stat(dir); err != nil {
		t.Fatal(err)
	}

	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the error is the kill signal

	patience.Until(t, "Azurite stops listening on "+endpoint, func() bool { return !answers(endpoint) })
	patience.Until(t, "the removal of "+dir, func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err)
	})
}
