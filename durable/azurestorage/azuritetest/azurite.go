// Package azuritetest provides Azure Storage for tests. [Start] starts Azurite, the emulator, on
// its first call; all tests of the process share it. [Counter] is a transport that counts requests
// and can make them fail. [Proxy] injects faults into the requests of other processes.
//
// No test has to stop Azurite. It runs under a small shell script that reads from a pipe of the
// test process. When that process ends, even by SIGKILL, the pipe closes, and the script kills
// Azurite and removes its data.
package azuritetest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
)

// The accounts of Azurite. The first is its default account. The second has the same key, which is
// public.
const (
	accountName = "devstoreaccount1"
	secondName  = "devstoreaccount2"
	accountKey  = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

var shared struct {
	once       sync.Once
	connection string
	pipe       *os.File // its end makes the script clean up
	dir        string   // folder of the log and the data
	err        error
}

// Start returns the connection string of an Azurite that all tests of this process share. Each test
// uses its own task hub. The first call starts Azurite on free loopback ports.
//
// The executable is the value of the environment variable AZURITE, or the repository's
// .azurite/node_modules/.bin/azurite, or azurite on PATH. Otherwise Start installs the pinned
// version below .azurite with npm. Without npm it skips the test, or fails it if [Required] reports
// that Azurite is required.
//
// The environment variable DURABLE_TEST_DELAY, such as 250ms, enables random delays up to that
// duration. One request in four is delayed on its way to the service, and one response in four on
// its way back. A test that fails with delays relies on an order that is not guaranteed.
func Start(tb testing.TB) string {
	tb.Helper()
	shared.once.Do(func() { shared.connection, shared.pipe, shared.err = start() })
	if errors.Is(shared.err, errNotFound) && !Required("azurite") {
		tb.Skipf("this test needs Azurite: %v", shared.err)
	}
	if shared.err != nil {
		tb.Fatalf("start Azurite: %v", shared.err)
	}
	return shared.connection
}

// SecondAccount returns the connection string of the second account of the same Azurite.
func SecondAccount(connection string) string {
	return strings.ReplaceAll(connection, accountName, secondName)
}

// Required reports whether what is in the environment variable DURABLE_TEST_REQUIRE, a
// comma-separated list. A test whose required tool is missing must fail instead of being skipped.
func Required(what string) bool {
	for word := range strings.SplitSeq(os.Getenv("DURABLE_TEST_REQUIRE"), ",") {
		if strings.TrimSpace(word) == what {
			return true
		}
	}
	return false
}

// supervise is a script that runs Azurite until Azurite ends or standard input ends. $1 is a folder
// for the log and the data, which the script removes at the end. The remaining arguments are the
// command. The script ignores signals and has its own process group: only the end of the test
// process stops it.
const supervise = `
trap '' INT HUP TERM
dir=$1; shift
exec 3<&0
"$@" </dev/null >"$dir/log" 2>&1 3<&- &
azurite=$!
{ cat <&3 >/dev/null; kill -9 $azurite; } >/dev/null 2>&1 &
exec 3<&-
wait $azurite
echo "azurite ended with status $?" >>"$dir/log"
wait
rm -rf "$dir"
`

func start() (connection string, pipe *os.File, err error) {
	executable, err := find()
	if err != nil {
		return "", nil, err
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		return "", nil, fmt.Errorf("%w: sh is not on PATH", errNotFound)
	}
	dir, err := os.MkdirTemp(dataRoot(), "azuritetest-*")
	if err != nil {
		return "", nil, err
	}
	shared.dir = dir
	// Queue messages and blobs are files in dir. The in-memory mode is not used, because its
	// garbage collection stops responses for seconds.
	cmd := exec.Command(sh, "-c", supervise, "azuritetest", dir, executable,
		"--silent", "--disableTelemetry", "--skipApiVersionCheck",
		"--location", filepath.Join(dir, "data"),
		"--blobHost", "127.0.0.1", "--queueHost", "127.0.0.1", "--tableHost", "127.0.0.1",
		"--blobPort", "0", "--queuePort", "0", "--tablePort", "0")
	cmd.Env = append(os.Environ(), fmt.Sprintf("AZURITE_ACCOUNTS=%s:%s;%s:%[2]s", accountName, accountKey, secondName))
	stdin, pipe, err := os.Pipe()
	if err != nil {
		return "", nil, err
	}
	cmd.Stdin = stdin
	inOwnGroup(cmd)
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stdin.Close()
	connection, err = awaitPorts(filepath.Join(dir, "log"))
	if err != nil {
		pipe.Close()
		return "", nil, fmt.Errorf("%s: %w", executable, err)
	}
	if connection, err = delayed(connection); err != nil {
		pipe.Close()
		return "", nil, err
	}
	return connection, pipe, nil
}

// awaitPorts reads the log until it contains the ports of all three services.
func awaitPorts(log string) (string, error) {
	for deadline := time.Now().Add(patience.Limit()); ; time.Sleep(20 * time.Millisecond) {
		text, err := os.ReadFile(log)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
		if connection := connectionString(string(text)); connection != "" {
			return connection, nil
		}
		if strings.Contains(string(text), "azurite ended") || time.Now().After(deadline) {
			return "", fmt.Errorf("the services did not start; the log is:\n%s", text)
		}
	}
}

var listening = regexp.MustCompile(`Azurite (Blob|Queue|Table) service (?:is )?successfully listen(?:s|ing) (?:on|at) (http://127\.0\.0\.1:\d+)`)

// connectionString derives a connection string from Azurite's log. It returns "" while the log is
// incomplete.
func connectionString(log string) string {
	endpoint := map[string]string{}
	for _, m := range listening.FindAllStringSubmatch(log, -1) {
		endpoint[m[1]] = m[2]
	}
	if len(endpoint) < 3 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "DefaultEndpointsProtocol=http;AccountName=%s;AccountKey=%s;", accountName, accountKey)
	for _, service := range []string{"Blob", "Queue", "Table"} {
		fmt.Fprintf(&b, "%sEndpoint=%s/%s;", service, endpoint[service], accountName)
	}
	return b.String()
}
