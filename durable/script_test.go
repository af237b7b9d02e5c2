package durable_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay/replaytest"
	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write the actual decisions into testdata/episodes")

// patterns returns the orchestrators that scripts can use.
func patterns() *durable.Registry {
	return durable.NewRegistry(
		durable.Orchestrator("HelloSequence", helloSequence),
		durable.Orchestrator("Checkout", checkout),
		durable.Orchestrator("Backup", backup),
		durable.Orchestrator("Monitor", monitor),
		durable.Orchestrator("Approve", approve),
		durable.Orchestrator("ApproveOrWithdraw", approveOrWithdraw),
		durable.Orchestrator("TranslateAll", translateAll),
		durable.Activity("SayHello", sayHello),
		durable.Activity("ReserveStock", reserveStock),
		durable.Activity("Charge", charge),
		durable.Activity("Release", release),
		durable.Activity("ListFiles", listFiles),
		durable.Activity("CopyFile", copyFile),
		durable.Activity("JobDone", jobDone),
		durable.Activity("Fetch", fetch),
		durable.Activity("Translate", translate),
	)
}

// TestScripts runs the scripts in testdata/episodes. Lines that start with ">" are the
// decisions of the previous episode; -rewrite updates them. The other lines are:
//
//	# a comment
//	instance NAME JSON     start an instance of the orchestrator
//	now DURATION           run the next episodes at this time after the start
//	evict                  unload the orchestrator from memory
//	rename ID NAME         evict, and rename the activity in the history
//	forget ID              evict, and delete the activity from the history
//	EVENT ; EVENT ; …      run an episode with these events:
//	    done ID JSON, failed ID TEXT, fired ID, raised NAME JSON,
//	    suspended, resumed, terminated TEXT
func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/episodes/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(text))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(got, string(text)); diff != "" {
				t.Errorf("%s (-got +want); use -rewrite to update it:\n%s", file, diff)
			}
		})
	}
}

// play runs the script and returns it with the decisions.
func play(t *testing.T, script string) string {
	t.Helper()
	var out strings.Builder
	var s *replaytest.Stage
	for line := range strings.Lines(script) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, ">") {
			continue
		}
		fmt.Fprintln(&out, line)
		verb, rest, _ := strings.Cut(line, " ")
		var before int
		if s != nil {
			before = len(s.Actions)
		}
		switch {
		case line == "", verb == "#":
			continue
		case verb == "instance":
			name, input, _ := strings.Cut(rest, " ")
			code, ok := durable.EngineOf(patterns()).Orchestrator(name, "")
			if !ok {
				t.Fatalf("no orchestrator %s", name)
			}
			s, before = replaytest.New(t, name, code), 0
			s.Start(json.RawMessage(input))
		case verb == "now":
			d, err := time.ParseDuration(rest)
			if err != nil {
				t.Fatal(err)
			}
			s.Now = replaytest.Epoch.Add(d)
			continue
		case verb == "evict":
			s.Evict()
			continue
		case verb == "rename", verb == "forget":
			id, name, _ := strings.Cut(rest, " ")
			edit(t, s, atoi(t, id), name)
			continue
		default:
			var events []history.Event
			for part := range strings.SplitSeq(line, " ; ") {
				events = append(events, readEvent(t, part))
			}
			s.Episode(events...)
		}
		for a := range strings.Lines(replaytest.Describe(s.Actions[before:])) {
			out.WriteString("> " + a)
		}
	}
	return out.String()
}

// edit renames the recorded activity id in the history, or deletes it if name is empty.
func edit(t *testing.T, s *replaytest.Stage, id int, name string) {
	t.Helper()
	s.Evict()
	for i, e := range s.History {
		if e, ok := e.(*history.TaskScheduled); ok && e.EventID == id {
			if name == "" {
				s.History = slices.Delete(s.History, i, i+1)
			} else {
				e.Name = name
			}
			return
		}
	}
	t.Fatalf("no activity %d in the history", id)
}

func readEvent(t *testing.T, text string) history.Event {
	t.Helper()
	verb, rest, _ := strings.Cut(text, " ")
	id, arg, _ := strings.Cut(rest, " ")
	switch verb {
	case "done":
		return done(atoi(t, id), arg)
	case "failed":
		return failed(atoi(t, id), arg)
	case "fired":
		return fired(atoi(t, id))
	case "raised":
		return raised(id, arg)
	case "suspended":
		return &history.ExecutionSuspended{Header: history.NewHeader(replaytest.Epoch)}
	case "resumed":
		return &history.ExecutionResumed{Header: history.NewHeader(replaytest.Epoch)}
	case "terminated":
		return &history.ExecutionTerminated{Header: history.NewHeader(replaytest.Epoch), Reason: &rest}
	}
	t.Fatalf("%q is not an event", text)
	return nil
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
