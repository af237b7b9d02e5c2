package handler

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/taskhub"
)

// eventLines returns the records of a text log that have a .NET event name, without times and IDs.
func eventLines(log *bytes.Buffer) []string {
	var lines []string
	for line := range strings.Lines(log.String()) {
		if at := strings.Index(line, "event="); at >= 0 {
			level := strings.TrimPrefix(strings.Fields(line)[1], "level=")
			lines = append(lines, level+" "+strings.TrimSpace(strings.TrimPrefix(line[at:], "event=")))
		}
	}
	return lines
}

// See WebJobs.Extensions.DurableTask/ContextImplementations/DurableClient.cs, StartNewAsync and
// SignalEntityAsyncInternal.
func TestScheduleLog_HasTheStartsAndSignalsOfClients(t *testing.T) {
	var log bytes.Buffer
	hub := newFakeHub()
	hub.put("live", history.Running, nil)
	c := durable.NewClient(taskhub.Client{Hub: hub, Log: NewLogger(&log, slog.LevelDebug)}, nil)
	if _, err := c.StartByName(t.Context(), "Order", []byte(`"secret"`), durable.InstanceID("new")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.StartByName(t.Context(), "Order", nil, durable.InstanceID("live")); !errors.Is(err, durable.ErrInstanceExists) {
		t.Fatal(err)
	}
	if err := c.RaiseEvent(t.Context(), "live", "op", []byte(`{"op":"x"}`)); err != nil {
		t.Fatal(err)
	}
	if err := c.SignalEntity(t.Context(), durable.EntityID{Name: "Counter", Key: "a"}, "add", []byte(`"secret"`)); err != nil {
		t.Fatal(err)
	}
	got := eventLines(&log)
	want := []string{
		"DEBUG FunctionScheduled instanceId=new name=Order functionType=Orchestrator reason=NewInstance",
		"DEBUG FunctionScheduled instanceId=@counter@a name=counter functionType=Entity operation=add reason=EntitySignal:add",
	}
	for i, line := range got {
		before, after, _ := strings.Cut(line, " executionId=")
		if _, rest, ok := strings.Cut(after, " "); ok {
			got[i] = before + " " + rest
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the log has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if strings.Contains(log.String(), "secret") {
		t.Errorf("the log has payloads: %s", &log)
	}
	log.Reset()
	quiet := durable.NewClient(taskhub.Client{Hub: hub, Log: NewLogger(&log, slog.LevelInfo)}, nil)
	if _, err := quiet.StartByName(t.Context(), "Order", nil); err != nil || log.Len() > 0 {
		t.Errorf("%v; the log has %s", err, &log)
	}
}

func TestIdentityTokens_LogWithTheEventNamesOfDotNet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := &fakeIdentity{}
		p := identityOf(f)
		p.log = NewLogger(&log, slog.LevelDebug)
		wantToken(t, p, forManagement, "token 1")
		wantToken(t, p, forManagement, "token 1") // from the cache
		f.err = errors.New("no identity")
		time.Sleep(57 * time.Minute)
		wantToken(t, p, forManagement, "token 1")
		time.Sleep(3 * time.Minute)
		if _, err := p.Token(t.Context(), forManagement); err == nil {
			t.Error("there is a token")
		}
		var got []string
		for _, line := range eventLines(&log) {
			got = append(got, strings.Join(strings.Fields(line)[:2], " "))
		}
		want := []string{
			"DEBUG RetrievingToken", "DEBUG RetrievingToken", "WARN TokenRenewalFailed", "DEBUG RetrievingToken", "ERROR TokenRetrievalFailed",
		}
		if !slices.Equal(got, want) {
			t.Errorf("the log has %q, want %q", got, want)
		}
		if strings.Contains(log.String(), "token 1") {
			t.Errorf("the log has the token: %s", &log)
		}
	})
}
