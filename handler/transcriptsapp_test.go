package handler

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
)

func entityExchanges() []exchange {
	hub := func() *fullHub { return &fullHub{fakeHub: entityHub()} }
	plain := []string{"Content-Type", "text/plain"}
	all := []exchange{
		{note: "all", method: "GET", target: managed + "entities"},
		{note: "with a name, with states", method: "GET", target: managed + "entities/Counter/?fetchState=true&top=2"},
		{note: "a page size that is not valid", method: "GET", target: managed + "entities?top=0"},
		{note: "a name that is not valid", method: "GET", target: managed + "entities/a@b"},
		{note: "the state of an entity", method: "GET", target: managed + "entities/Counter/k%201"},
		{note: "the state of the entity with the empty key", method: "GET", target: managed + "entities/Counter/$"},
		{note: "the state of an entity that does not exist", method: "GET", target: managed + "entities/Counter/none"},
		{note: "the state of an entity with a name that is not valid", method: "GET", target: managed + "entities/a@b/k"},
		{note: "signal an entity", method: "POST", target: managed + "entities/Counter/k%201?op=add", body: "1"},
		{note: "signal an entity with a text", method: "POST", target: managed + "entities/Counter/k%201?op=add", body: "one", headers: plain},
		{note: "signal an entity with input that is not JSON", method: "POST", target: managed + "entities/Counter/k%201?op=add", body: "one"},
		{note: "signal the entity with the empty key", method: "POST", target: managed + "entities/Counter?op=add", body: "1"},
		{note: "signal the entity with the empty key with input that is not JSON", method: "POST", target: managed + "entities/Counter?op=add", body: "{"},
		{note: "delete an entity", method: "DELETE", target: managed + "entities/Counter/k%201"},
		{note: "delete an entity with a key that is not valid", method: "DELETE", target: managed + "entities/Counter/a%23b"},
		{note: "delete the entity with the empty key", method: "DELETE", target: managed + "entities/Counter"},
		{note: "delete an entity with a name that is not valid", method: "DELETE", target: managed + "entities/a@b"},
	}
	for i := range all {
		all[i].hub = hub
	}
	return all
}

func appExchanges() []exchange {
	broken := func(cfg *Config) {
		cfg.Problem = errors.New("extensions.durableTask.hubName is \"-\"; want 3 to 45 letters and digits (host.json line 3)\nversion is \"1.0\"; want \"2.0\" (host.json line 1)")
	}
	withKey := func(cfg *Config) { cfg.Key = theKey }
	down := func(s *Server) { s.state.SetUnavailable("The storage does not answer.") }
	stopping := func(s *Server) { close(s.draining) }
	return []exchange{
		{note: "the first request of the host", method: "GET", target: "/"},
		{note: "the same without storage", method: "GET", target: "/", was: down},
		{note: "the same with a wrong configuration", method: "GET", target: "/", app: broken},
		{note: "the same without the key", method: "GET", target: "/", was: down, app: withKey},
		{note: "liveness", method: "GET", target: "/health/live"},
		{note: "liveness, at the management API", method: "GET", target: managed + "health/live", app: withKey},
		{note: "readiness", method: "GET", target: "/health/ready"},
		{note: "readiness, at the management API", method: "GET", target: managed + "health/ready"},
		{note: "not ready: without storage", method: "GET", target: managed + "health/ready", was: down},
		{note: "the same without the key", method: "GET", target: "/health/ready", was: down, app: withKey},
		{note: "the same with the key", method: "GET", target: "/health/ready?code=" + theKey, was: down, app: withKey},
		{note: "not ready: the app is stopping", method: "GET", target: "/health/ready", was: stopping},
		{note: "not ready: the configuration is wrong", method: "GET", target: managed + "health/ready", app: broken},
		{note: "the configuration", method: "GET", target: managed + "configuration"},
		{note: "the configuration when it is wrong", method: "GET", target: managed + "configuration", app: broken},
		{note: "the load of the hub", method: "GET", target: managed + "scale", app: withLoad},
		{note: "the load of a hub that does not report it", method: "GET", target: managed + "scale"},
		{note: "makes the app the primary app, with app leases", method: "POST", target: managed + "makeprimary", app: withLoad},
		{note: "makes the app the primary app, without app leases", method: "POST", target: managed + "makeprimary", app: func(cfg *Config) {
			withLoad(cfg)
			cfg.Storage.AppLease.Disabled = true
		}},
		{note: "moves messages that were set aside back; a local hub has none", method: "POST", target: managed + "undecodable/retry"},
		{note: "a backup", method: "POST", target: managed + "backup?path=/backups/hub.db"},
		{note: "a backup into a file that exists", method: "POST", target: managed + "backup?path=/backups/taken.db"},
		{note: "a backup without a path", method: "POST", target: managed + "backup"},
		{note: "a backup of a hub that is not in a local file", method: "POST", target: managed + "backup?path=/backups/hub.db", app: func(cfg *Config) {
			cfg.Provider = cfg.Provider.(*fullHub).fakeHub
		}},
		{note: "makes the app the primary app, on a hub without app leases", method: "POST", target: managed + "makeprimary"},
	}
}

const theKey = "0123456789abcdefghij"

func refusedExchanges() []exchange {
	withKey := func(cfg *Config) { cfg.Key = theKey }
	behindHost := func(cfg *Config) { cfg.Key, cfg.BehindHost = theKey, true }
	code := func(id durable.InstanceID) string { return management.Access{Key: theKey}.Code(id, fakeTime) }
	startedSince := func() *fullHub {
		h := newFullHub()
		h.put("running", history.Running, func(s *provider.InstanceState) { s.FirstCreatedAt = fakeTime.Add(time.Second) })
		return h
	}
	down := func() *fullHub { h := newFullHub(); h.outage = errNoStorage; return h }
	broken := func() *fullHub { h := newFullHub(); h.outage = errors.New("row has no column Name"); return h }
	get := func(note, target string, headers ...string) exchange {
		return exchange{note: note, method: "GET", target: managed + target, headers: headers, app: withKey}
	}
	return []exchange{
		get("without the key", "instances/running"),
		get("with another key", "instances/running?code=0123456789abcdefghik"),
		get("with the key as a parameter", "instances/running?code="+theKey),
		get("with the key in a header", "instances/running", "x-functions-key", theKey),
		get("with the code of the instance, from its URLs", "instances/running?code="+code("running")),
		get("with the code of another instance", "instances/running?code="+code("pending")),
		{note: "with a code for an earlier instance with the ID", method: "GET", target: managed + "instances/running?code=" + code("running"), app: withKey, hub: startedSince},
		get("with the code of an instance, for the list", "instances?code="+code("running")),
		get("an unknown path, without the key", "nothing"),
		get("an unknown path, with the key", "nothing?code="+theKey),
		get("the configuration, without the key", "configuration"),
		{note: "the URLs for a caller with the key", method: "POST", target: managed + "orchestrators/Greet/i?code=" + theKey, app: withKey},
		{
			note: "the URLs behind the host, for a caller with the key of the app", method: "POST", target: managed + "orchestrators/Greet/i",
			headers: []string{"x-functions-key", theKey}, app: behindHost,
		},
		{
			note: "the URLs behind a host that checks keys of its own", method: "POST", target: managed + "orchestrators/Greet/i?code=" + theKey,
			headers: []string{"x-functions-key", "the-host-key"}, app: behindHost,
		},
		{note: "another task hub", method: "GET", target: managed + "instances?taskHub=Theirs"},
		{note: "another connection", method: "GET", target: managed + "instances?connection=Theirs"},
		{note: "the app's connection by its long name", method: "GET", target: managed + "instances?connection=AzureWebJobsStorage&top=1"},
		{note: "the storage is unreachable", method: "GET", target: managed + "instances/running", hub: down},
		{note: "the stored data is not valid", method: "GET", target: managed + "instances/running", hub: broken},
		{note: "the app has no hub", method: "GET", target: managed + "instances/running", was: func(s *Server) { s.state.SetUnavailable("There is no storage.") }},
		{note: "a known path with a wrong method", method: "PUT", target: managed + "instances/running"},
		{note: "an unknown operation", method: "POST", target: managed + "instances/running/explode"},
		{note: "a path that goes up", method: "GET", target: managed + "instances/../configuration"},
		{note: "a path that goes up, escaped", method: "GET", target: managed + "instances/%2e%2e%2fconfiguration"},
		{note: "an ID that is too long", method: "POST", target: managed + "instances/" + strings.Repeat("x", 600) + "/terminate"},
		{note: "an ID that is not text", method: "GET", target: managed + "instances/%ff%fe"},
		{note: "an ID with a zero byte", method: "GET", target: managed + "instances/a%00b"},
		{note: "a name that is too long", method: "POST", target: managed + "orchestrators/" + strings.Repeat("x", 1100)},
		{note: "JSON that is nested extremely deeply", method: "POST", target: managed + "orchestrators/Greet", body: strings.Repeat("[", 20_000)},
		{note: "JSON that is nested too deeply", method: "POST", target: managed + "orchestrators/Greet", body: strings.Repeat("[", 600) + strings.Repeat("]", 600)},
		{
			note: "a request that a page of another site makes a browser send", method: "POST", target: managed + "instances/running/terminate",
			headers: []string{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"},
		},
	}
}

// A loadedHub reports its load and has a primary app.
type loadedHub struct{ *fullHub }

func withLoad(cfg *Config) {
	cfg.Worker.MaxConcurrentActivities, cfg.Worker.MaxConcurrentOrchestrators = 1000, 1000
	cfg.Provider = loadedHub{cfg.Provider.(*fullHub)}
}

func (loadedHub) MakePrimary(context.Context) error { return nil }

func (loadedHub) Load(context.Context) (*provider.Load, error) {
	return &provider.Load{
		ControlQueues: []provider.QueueLoad{{Length: 3, Latency: 250 * time.Millisecond}, {}},
		WorkItems:     provider.QueueLoad{Length: 10_000, Latency: 2 * time.Second}, Workers: 1,
	}, nil
}
