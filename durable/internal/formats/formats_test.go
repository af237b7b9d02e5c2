// Package formats_test checks that this version reads the task hubs and histories of all released versions. Folder
// testdata has, for each version and store, the hub that a process of that version left when it was killed.
package formats_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	_ "github.com/durablefunctions-go/durablefunctions/durable/durabletest/oneprocessor"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/google/go-cmp/cmp"
)

var write = flag.String("formats.write", "", "write the hubs of a new `version`, such as v0.1.0, into testdata; files of a released version must not change")

// left is a hub that a process left.
type left struct {
	Hub       json.RawMessage         `json:"hub"`
	Instances map[string]leftInstance `json:"instances"`
}

// leftInstance is an instance as the process read it.
type leftInstance struct {
	Status  string          `json:"status"`
	History json.RawMessage `json:"history"`
}

// lines returns the status, and the events of the history.
func (i leftInstance) lines() []string {
	var b bytes.Buffer
	if err := json.Indent(&b, i.History, "", ""); err != nil {
		return []string{err.Error()}
	}
	return append([]string{i.Status}, strings.Split(strings.TrimSpace(b.String()), "\n")...)
}

// outputs are the results of all orchestrations after the hub continues.
var outputs = map[string]string{
	"ended": `"charged 1, delivered by Ann"`, "failed": "out of stock", "waits": `"charged 2, delivered by Bob"`,
	"family": `"[charged 3, delivered by Eve charged 4, delivered by Eve]"`, "child-1": `"charged 3, delivered by Eve"`, "child-2": `"charged 4, delivered by Eve"`,
	"rests": `"rested 2 hours"`, "rounds": "3", "inventory": "12", "next": "14", "shipment": `"shipped to Rome"`, "large": "100000",
	"suspended": `"charged 5, delivered by Eve"`, "later": `"charged 6, delivered by Eve"`, "pending": `"charged 7, delivered by Eve"`,
}

func TestHubs_OfEachVersionAreReadAndContinue(t *testing.T) {
	t.Parallel()
	if *write != "" {
		for name, create := range stores {
			synctest.Test(t, func(t *testing.T) { writeLeft(t, filepath.Join("testdata", *write, name+".json.gz"), create(t)) })
		}
	}
	for _, file := range leftFiles(t) {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := stores[strings.TrimSuffix(filepath.Base(file), ".json.gz")](t)
				saved := readLeft(t, file)
				s.load(t, saved.Hub)
				defer s.end()
				p := open(t, s, "reader")
				for id, want := range saved.Instances {
					if diff := cmp.Diff(want.lines(), p.instance(id).lines()); diff != "" {
						t.Errorf("instance %s (-want +got):\n%s", id, diff)
					}
				}
				p.stop()
				finish(t, s)
			})
		})
	}
}

// Each version reads the JSON histories of all earlier versions, in replay tests and in hub verify.
func TestHistories_OfEachVersionMatchTheirFunctions(t *testing.T) {
	t.Parallel()
	for _, file := range leftFiles(t) {
		for id, one := range readLeft(t, file).Instances {
			events, err := durable.UnmarshalHistory(one.History)
			if err != nil {
				t.Errorf("%s: instance %s: %v", file, id, err)
				continue
			}
			again, err := durable.MarshalHistory(events)
			if diff := cmp.Diff(one.lines(), leftInstance{one.Status, again}.lines()); err != nil || diff != "" {
				t.Errorf("%s: instance %s changes when it is written again: %v (-want +got):\n%s", file, id, err, diff)
			}
			if len(events) == 0 || history.IsEntity(id) {
				continue
			}
			if err := registry.Verify(events); err != nil {
				t.Errorf("%s: instance %s: %v", file, id, err)
			}
		}
	}
}

// leftFiles returns the files in testdata. Each version has a file for each store.
func leftFiles(t *testing.T) []string {
	t.Helper()
	versions, err := filepath.Glob(filepath.Join("testdata", "v*"))
	if err != nil || len(versions) == 0 {
		t.Fatalf("no versions in testdata: %v", err)
	}
	var files []string
	for _, version := range versions {
		for _, name := range slices.Sorted(maps.Keys(stores)) {
			files = append(files, filepath.Join(version, name+".json.gz"))
		}
	}
	return files
}

// A process has a hub open.
type process struct {
	*testing.T
	hub    hub
	client *durable.Client
	cancel func()
	done   chan struct{} // closed when the worker has stopped; nil without a worker
}

// open opens the hub of s, without a worker.
func open(t *testing.T, s store, name string) *process {
	t.Helper()
	h := s.open(t, name)
	return &process{T: t, hub: h, client: durable.NewClient(h.Provider, registry), cancel: func() {}}
}

// work opens the hub of s, and runs a worker.
func work(t *testing.T, s store, name string) *process {
	t.Helper()
	p := open(t, s, name)
	ctx, cancel := context.WithCancel(t.Context())
	p.cancel, p.done = cancel, make(chan struct{})
	go func() { // stop waits for it
		defer close(p.done)
		if err := durable.NewWorker(p.hub.Provider, registry, durable.Config{Logger: quiet()}).Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	return p
}

// stopWorker stops the worker. The hub stays open.
func (p *process) stopWorker() {
	p.cancel()
	if p.done != nil {
		<-p.done
	}
}

func (p *process) stop() {
	p.Helper()
	p.stopWorker()
	p.must(p.hub.close())
}

func (p *process) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *process) raise(by string, ids ...durable.InstanceID) {
	p.Helper()
	for _, id := range ids {
		p.must(delivered.Raise(p.Context(), p.client, id, by))
	}
}

// settle waits until the worker has nothing to do for now.
func (*process) settle() { time.Sleep(5 * time.Second) }

// instance returns an instance as p reads it.
func (p *process) instance(id string) leftInstance {
	p.Helper()
	state, err := p.client.Status(p.Context(), durable.InstanceID(id), durable.Fetch{})
	p.must(err)
	events, err := p.client.History(p.Context(), durable.InstanceID(id))
	p.must(err)
	text, err := durable.MarshalHistory(events)
	p.must(err)
	return leftInstance{state.Status.String(), text}
}

// begin starts an instance with an ID.
func begin[I, O any](p *process, id durable.InstanceID, f func(*durable.Context, I) (O, error), in I, opts ...durable.StartOption) {
	p.Helper()
	_, err := durable.Start(p.Context(), p.client, f, in, append(opts, id)...)
	p.must(err)
}

// writeLeft runs an app on an empty store until it has all kinds of work in flight, and writes the bytes of the store.
func writeLeft(t *testing.T, file string, s store) {
	t.Helper()
	defer s.end()
	p := work(t, s, "one")
	p.settle()
	begin(p, "ended", order, 1)
	begin(p, "failed", refuse, durable.Void{})
	begin(p, "waits", order, 2, durable.Tags(map[string]string{"team": "blue"}))
	begin(p, "family", family, 3)
	begin(p, "rounds", rounds, 1)
	p.must(durable.Signal(t.Context(), p.client, apples, (*stock).Add, 10))
	p.settle()
	p.raise("Ann", "ended")
	p.settle()
	p.stop()
	p = open(t, s, "compacts")
	if logs, ok := p.hub.Provider.(*partitionlog.Hub); ok { // moves the records out of the logs
		_, _, err := logs.Compact(t.Context())
		p.must(err)
	}
	p.stop()

	p = work(t, s, "two")
	p.settle()
	begin(p, "rests", rest, 2)
	begin(p, "inventory", inventory, 2)
	begin(p, "shipment", shipment, "Rome")
	begin(p, "large", measure, strings.Repeat("large ", 20000)[:100000])
	begin(p, "suspended", order, 5)
	begin(p, "later", order, 6, durable.StartAt(time.Now().Add(10*time.Hour)))
	p.settle()
	begin(p, "next", inventory, 2) // waits for the locks
	p.must(p.client.Suspend(t.Context(), "suspended", "for a while"))
	p.settle()
	p.stopWorker()
	begin(p, "pending", order, 7)
	p.raise("Bob", "waits")
	p.must(durable.Signal(t.Context(), p.client, pears, (*stock).Add, 4))

	saved := left{Hub: s.save(t), Instances: map[string]leftInstance{}}
	for _, id := range append(slices.Sorted(maps.Keys(outputs)), "@stock@apples", "@stock@pears") {
		saved.Instances[id] = p.instance(id)
	}
	p.must(p.hub.close())
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	p.must(err)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false) // keeps the JSON of histories
	p.must(errors.Join(encoder.Encode(saved), w.Close(), os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, packed.Bytes(), 0o644)))
}

func readLeft(t *testing.T, file string) left {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	var saved left
	if err := json.Unmarshal(text, &saved); err != nil {
		t.Fatal(err)
	}
	return saved
}

// finish runs the app on a hub that writeLeft left, and checks the results.
func finish(t *testing.T, s store) {
	t.Helper()
	p := work(t, s, "three")
	defer p.stop()
	p.settle()
	p.must(p.client.Resume(t.Context(), "suspended", ""))
	time.Sleep(11 * time.Hour) // the timers, retries and scheduled starts are due
	p.raise("Eve", "child-1", "child-2", "rounds", "inventory", "large", "suspended", "later", "pending")
	p.settle()
	p.raise("Eve", "next")
	time.Sleep(time.Minute)
	for id, want := range outputs {
		state, err := p.client.Status(t.Context(), durable.InstanceID(id), durable.Fetch{Output: true})
		if err != nil {
			t.Errorf("instance %s: %v", id, err)
			continue
		}
		ends := state.Status == history.Completed || id == "failed" && state.Status == history.Failed
		if got := state.Output; !ends || got == nil || !strings.Contains(*got, want) {
			t.Errorf("instance %s is %v with %v, want %s", id, state.Status, got, want)
		}
	}
	for key, want := range map[durable.EntityKey[stock]]int{apples: 14, pears: 4} {
		if got, err := durable.ReadEntity(t.Context(), p.client, key); err != nil || got.Count != want {
			t.Errorf("entity %s has %v, %v; want %d", key, got, err, want)
		}
	}
}
