package handler

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/hubcli"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
)

// A parcel is the input of an orchestrator. The bits of Shape select what it does before it waits.
type parcel struct {
	Shape    int
	Insured  bool
	Delivery string
}

const delivered = durable.Event[string]("Delivered")

// A shop is a version of an app. A shop that insures has a changed orchestrator.
type shop struct{ insures bool }

func (s shop) ship(ctx *durable.Context, p parcel) (string, error) {
	if p.Shape&1 != 0 {
		if _, err := durable.CallActivity(ctx, s.pack, p.Delivery).Await(); err != nil {
			return "", err
		}
	}
	if s.insures && p.Insured {
		if _, err := durable.CallActivity(ctx, s.insure, p.Delivery).Await(); err != nil {
			return "", err
		}
	}
	if p.Shape&2 != 0 {
		ctx.Sleep(time.Millisecond)
	}
	if p.Shape&4 != 0 {
		durable.CallSubOrchestrator(ctx, s.follow, p.Delivery, durable.InstanceID("child of "+p.Delivery))
	}
	if p.Shape&8 != 0 {
		ctx.SetCustomStatus("on its way")
	}
	if p.Shape&16 != 0 {
		if _, err := durable.Map(ctx, s.pack, []string{"left", "right"}, 2); err != nil {
			return "", err
		}
	}
	return delivered.Wait(ctx).Await() // shipped
}

func (s shop) follow(ctx *durable.Context, _ string) (string, error) {
	return delivered.Wait(ctx).Await()
}

func (s shop) pack(_ context.Context, what string) (string, error)   { return what, nil }
func (s shop) insure(_ context.Context, what string) (string, error) { return what, nil }

func (s shop) functions() []*durable.Registration {
	return []*durable.Registration{
		durable.Orchestrator("Ship", s.ship), durable.Orchestrator("Follow", s.follow),
		durable.Activity("Pack", s.pack), durable.Activity("Insure", s.insure),
	}
}

// hubRun runs `app hub` of a shop on a hub.
func hubRun(t *testing.T, s *Server, of shop, args ...string) (out, errs string, code int) {
	t.Helper()
	var o, e strings.Builder
	tool := &hubTool{app: App{Registrations: of.functions()}}
	code = hubcli.Program{
		Name: "app hub", Stdout: &o, Stderr: &e, Verify: tool.verifier(),
		Open: func(context.Context) (*hubcli.Target, error) {
			return &hubcli.Target{Client: &http.Client{Transport: inProcess{s}}, Base: "http://localhost" + web.WebhookPath}, nil
		},
	}.Run(t.Context(), args)
	return o.String(), e.String(), code
}

// With 10,000 instances, the change breaks 137.
var liveInstances = flag.Int("verify.instances", 320, "how `many` live instances are verified")

func TestHubVerify_NamesExactlyTheInstancesThatAChangeBreaks(t *testing.T) {
	t.Parallel()
	const every = 73 // every 73rd instance is insured
	instances := *liveInstances
	hub, err := embedded.Open(filepath.Join(t.TempDir(), "hub.db"), embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := hub.Close(); err != nil {
			t.Error(err)
		}
	})
	before := durable.NewRegistry(shop{}.functions()...)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- durable.NewWorker(hub, before, durable.Config{Logger: slog.New(slog.DiscardHandler)}).Run(ctx)
	}()
	client := durable.NewClient(hub, before)
	var broken []string
	live := map[string]bool{}
	for i := range instances {
		p := parcel{Shape: i % 20, Insured: i%every == 0, Delivery: fmt.Sprintf("parcel/%05d", i)}
		p.Delivery = strings.ReplaceAll(p.Delivery, "/", "-")
		if _, err := durable.Start(t.Context(), client, shop{}.ship, p, durable.InstanceID(p.Delivery)); err != nil {
			t.Fatal(err)
		}
		if p.Insured {
			broken = append(broken, p.Delivery)
		}
		live[p.Delivery] = true
		if p.Shape&4 != 0 {
			live["child of "+p.Delivery] = true
		}
	}
	for id := range live { // until all instances wait for the event
		patience.Until(t, id+" waits for the event", func() bool {
			w, err := client.Why(t.Context(), durable.InstanceID(id))
			return err == nil && slices.ContainsFunc(w.Reasons, func(r durable.Reason) bool { return r.Kind == durable.ReasonEvent })
		})
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	s := readyServer(t, App{Registrations: shop{}.functions()}, fakeConfig(t, hub))

	out, errs, code := hubRun(t, s, shop{}, "verify")
	if code != 0 || out != "" || !strings.HasSuffix(errs, fmt.Sprintf("All instances match the orchestrators of this program: %d\n", len(live))) {
		t.Errorf("with the same code: %d %s%s", code, out, errs)
	}
	names := func(text string) (ids []string) {
		var misfits []struct{ InstanceID, Recorded, Produced string }
		if err := json.Unmarshal([]byte(text), &misfits); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		for _, m := range misfits {
			if !strings.Contains(m.Produced, "Insure") {
				t.Errorf("%+v", m)
			}
			ids = append(ids, m.InstanceID)
		}
		return ids
	}
	out, errs, code = hubRun(t, s, shop{insures: true}, "verify", "--output", "json")
	if got := names(out); code != 1 || !slices.Equal(got, broken) || !strings.Contains(errs, fmt.Sprintf("%d of %d instances do not match", len(broken), len(live))) {
		t.Errorf("with other code: %d %s: %v, want %v", code, errs, got, broken)
	}
	if out, _, code = hubRun(t, s, shop{insures: true}, "verify", "--name", "follow"); code != 0 || out != "" {
		t.Errorf("of an orchestrator that has not changed: %d %s", code, out)
	}

	dir := filepath.Join(t.TempDir(), "histories")
	if out, errs, code = hubRun(t, s, shop{}, "record", "--dir", dir); code != 0 || !strings.Contains(out, fmt.Sprintf("recorded %d histories", len(live))) {
		t.Fatalf("record: %d %s%s", code, out, errs)
	}
	out, _, code = hubRun(t, s, shop{insures: true}, "verify", dir, "--output", "json")
	if got := names(out); code != 1 || !slices.Equal(got, broken) {
		t.Errorf("recorded, with other code: %d %v, want %v", code, got, broken)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, _, code = hubRun(t, s, shop{}, "record", "parcel-00001", "--dir", dir); code != 0 {
		t.Errorf("record one: %d", code)
	}
	if _, _, code = hubRun(t, s, shop{}, "verify", filepath.Join(dir, "parcel-00001.json")); code != 0 {
		t.Errorf("verify one: %d", code)
	}
	if _, _, code = hubRun(t, s, shop{}, "record", "nobody", "--dir", dir); code != hubcli.ExitNotFound {
		t.Errorf("record without a match: %d", code)
	}

	out, _, code = hubRun(t, s, shop{}, "why", "parcel-00004", "--children")
	if code != 0 || !strings.Contains(out, `event "Delivered"`) || strings.Count(out, "replays_test.go:") != 2 || !strings.Contains(out, "child of parcel-00004") {
		t.Errorf("why: %d\n%s", code, out)
	}
	out, _, code = hubRun(t, s, shop{}, "why", "--stuck", "--idle", "0s", "--output", "json")
	var jams []struct {
		Count            int
		Name, Kind, What string
	}
	if err := json.Unmarshal([]byte(out), &jams); err != nil || code != 0 || len(jams) != 3 || jams[0].Count != instances || jams[0].Kind != "event" || jams[0].What != "Delivered" {
		t.Errorf("why --stuck: %d %+v", code, jams)
	}
	if _, errs, code = hubRun(t, s, shop{}, "why"); code != hubcli.ExitUsage {
		t.Errorf("why of nothing: %d %s", code, errs)
	}
	if state, err := client.Status(t.Context(), "parcel-00000", durable.Fetch{}); err != nil || state.Status != history.Running {
		t.Errorf("a verified instance is %+v, %v", state, err)
	}
}
