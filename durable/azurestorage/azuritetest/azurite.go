// Package azuritetest gives tests an Azure Storage to talk to: Azurite, the
// emulator, started on the first call of [Start] and shared by all tests of
// the process. It also has [Counter], a transport that counts requests and can
// make them fail, and [Proxy], which does that to those of other processes.
//
// Nothing has to be stopped. Azurite runs below a small shell script that reads
// from a pipe which the test process holds open. However that process ends,
// and be it by SIGKILL, the pipe closes, and the script kills Azurite and removes
// its data.
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

// The accounts that it has. The first is the one that every Azurite has, the
// second has the same key, which is public.
const (
	accountName = "devstoreaccount1"
	secondName  = "devstoreaccount2"
	accountKey  = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

var shared struct {
	once       sync.Once
	connection string
	pipe       *os.File // kept open: its end tells the script to clean up
	err        error
}

// Start returns the connection string of an Azurite that all tests of this
// process share; they keep out of each other's way by using task hubs of their
// own. The first call starts it on free loopback ports.
//
// The executable is the one that the environment variable AZURITE names, or
// the repository's .azurite/node_modules/.bin/azurite, or the one on PATH. If
// there is none but npm is on PATH, the pinned version is installed below
// .azurite first. If that is not possible either, the test is skipped, or it
// fails if [Required] says that Azurite must be there.
//
// With a duration in the environment variable DURABLE_TEST_DELAY, such as 250ms,
// one request in four waits up to so long before it gets there, and one answer in
// four before it gets back. A test that fails then counts on an order in which
// nothing has to happen.
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

// Second returns the connection string of another account of the same Azurite.
func Second(connection string) string { return strings.ReplaceAll(connection, accountName, secondName) }

// Required reports whether what is one of the words, separated by commas, in
// the environment variable DURABLE_TEST_REQUIRE. A test that misses a thing
// which is required fails instead of being skipped.
func Required(what string) bool {
	for word := range strings.SplitSeq(os.Getenv("DURABLE_TEST_REQUIRE"), ",") {
		if strings.TrimSpace(word) == what {
			return true
		}
	}
	return false
}

// supervise runs Azurite until it ends or standard input does. $1 is a folder
// for the log and the data, removed at the end; the rest is the command.
// Interrupts are left to the test process, whose end is the signal that counts.
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
		return "", nil, fmt.Errorf("%w: no sh to run it with", errNotFound)
	}
	dir, err := os.MkdirTemp(dataRoot(), "azuritetest-*")
	if err != nil {
		return "", nil, err
	}
	// Queue messages and blobs are files in dir. The in-memory mode is not used,
	// because it stops answering for seconds when it collects its garbage.
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

// awaitPorts reads the log until it names the ports of all three services.
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
			return "", fmt.Errorf("no service came up; its log says:\n%s", text)
		}
	}
}

var listening = regexp.MustCompile(`Azurite (Blob|Queue|Table) service (?:is )?successfully listen(?:s|ing) (?:on|at) (http://127\.0\.0\.1:\d+)`)

// connectionString makes a connection string of what Azurite says when it
// starts, or "" if it has not said everything yet.
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
