package handler

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"testing/synctest"
)

// The other log alerts of the template are tested with simulated incidents, in durable/internal/metering/incidents.
func TestAzureAlerts_FindAnAppThatIsNotReady(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("internal", "newapp", "files", "main.bicep"))
	if err != nil {
		t.Fatal(err)
	}
	query := regexp.MustCompile(`name: 'notready'\n.*\n.*\n    query: 'traces \| where message has "(.*)"'\n`).FindSubmatch(text)
	if query == nil {
		t.Fatal("the template has no alert for an app that is not ready")
	}
	for name, damage := range map[string]func(*fakeHub, *Config){
		"storage": func(hub *fakeHub, _ *Config) { hub.fail(refusedConnection) },
		"setting": func(_ *fakeHub, cfg *Config) { cfg.Problem = errors.New("a wrong setting") },
		"none":    func(*fakeHub, *Config) {},
	} {
		synctest.Test(t, func(t *testing.T) {
			hub := newFakeHub()
			cfg, log := loggedConfig(t, hub)
			damage(hub, &cfg)
			s := New(App{}, cfg)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.work(ctx) }()
			synctest.Wait()
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if found := log.count(string(query[1])) > 0; found != (name != "none") {
				t.Errorf("%s: the alert fires: %t", name, found)
			}
		})
	}
}
