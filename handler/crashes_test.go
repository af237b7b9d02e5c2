//go:build unix

package handler

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// crasher is an app with functions that nothing can recover from.
var crasher = App{Functions: []*durable.Function{
	durable.Orchestrator("Good", idle),
	durable.Orchestrator("activity", func(ctx *durable.Context, _ string) (string, error) {
		return durable.CallActivity(ctx, crashingActivity, "").Await()
	}),
	durable.Activity("Crash", crashingActivity),
	durable.Orchestrator("orchestrator", func(*durable.Context, string) (string, error) {
		crash()
		select {}
	}),
}}

func crashingActivity(ctx context.Context, _ string) (string, error) {
	crash()
	<-ctx.Done()
	return "", ctx.Err()
}

func crash() {
	go func() { panic("on a goroutine of the user") }()
}

// One instance cannot keep an app in a crash loop: what was under way at two crashes is
// set aside, whatever it is, until it is resumed.
func TestCrash_WhatCrashesTheProcessTwiceIsSetAside(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"activity", "orchestrator"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			hostJSON := durableTaskJSON(`"storageProvider": {"type": "embedded"}`)
			if err := os.WriteFile(filepath.Join(root, hostJSONFile), []byte(hostJSON), 0o600); err != nil {
				t.Fatal(err)
			}
			// A start of the process, which ends when the test does.
			start := func() (out *bufio.Reader, base string, crashed, kill func()) {
				cmd := command(t, "crasher", "{}", "PORT=0", "GOTRACEBACK=single")
				cmd.Dir = root
				pipe, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = cmd.Process.Kill() })
				out = bufio.NewReader(pipe)
				crashed = func() {
					t.Helper()
					_, _ = io.Copy(io.Discard, out)
					_ = cmd.Wait()
					if code := cmd.ProcessState.ExitCode(); code != 2 {
						t.Fatalf("the process ends with code %d, want the 2 of a panic", code)
					}
				}
				return out, addressIn(t, lineWith(t, out, "msg=listening")), crashed, func() { _ = cmd.Process.Signal(syscall.SIGKILL); _ = cmd.Wait() }
			}
			// A process that crashes may not come to answer.
			post := func(url string, crashing bool) {
				t.Helper()
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
				if err != nil {
					t.Fatal(err)
				}
				answer, err := http.DefaultClient.Do(r)
				if err != nil && crashing {
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				_ = answer.Body.Close()
				if answer.StatusCode >= 300 {
					t.Fatalf("POST %s: %d", url, answer.StatusCode)
				}
			}

			out, base, crashed, _ := start()
			lineWith(t, out, "storage answers")
			post(base+managed+"orchestrators/"+kind+"/bad", true)
			crashed()
			_, _, crashed, _ = start()
			crashed()

			out, base, _, kill := start()
			if line := lineWith(t, out, "held back"); !strings.Contains(line, "level=ERROR") || !strings.Contains(line, "instanceId=bad") {
				t.Errorf("the log says %s", line)
			}
			if _, body := get(t, base+managed+"instances/bad"); !strings.Contains(body, "Set aside: the "+kind) {
				t.Errorf("the status is %s", body)
			}
			if _, body := get(t, base+readyPath); !strings.Contains(body, "1 instances have been set aside") {
				t.Errorf("the health is %s", body)
			}
			post(base+managed+"orchestrators/Good/good", false)
			status := func(id, want string) {
				t.Helper()
				eventually(t, id+" is "+want, func() bool {
					_, body := get(t, base+managed+"instances/"+id)
					return strings.Contains(body, `"runtimeStatus":"`+want+`"`)
				})
			}
			status("good", "Completed")

			// A kill is no crash, and a start does not forget.
			kill()
			out, base, crashed, _ = start()
			lineWith(t, out, "held back")
			post(base+managed+"instances/bad/suspend?reason=x", false)
			status("bad", "Suspended")
			post(base+managed+"instances/bad/resume?reason=x", true)
			crashed() // it runs again
		})
	}
}
