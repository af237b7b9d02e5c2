package durable_test

import (
	"log/slog"
	"os"
	"reflect"
	"regexp"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"go.opentelemetry.io/otel/trace/noop"
)

// otherConfig returns a configuration whose fields all differ from their defaults.
func otherConfig(t *testing.T) durable.Config {
	t.Helper()
	c := durable.Config{
		HTTP: durable.HTTPConfig{PollInterval: time.Second}, Tracing: durable.Tracing{Provider: noop.NewTracerProvider()},
		Lifecycle: func(durable.LifecycleEvent) {}, Logger: slog.New(slog.DiscardHandler), ExtendedSessionIdle: -time.Second,
		VersionMatch: durable.MatchNone,
	}
	for field, v := range reflect.ValueOf(&c).Elem().Fields() {
		switch {
		case !v.IsZero() || field.Type.Kind() == reflect.Struct:
		case v.CanInt():
			v.SetInt(1)
		case v.Kind() == reflect.Bool:
			v.SetBool(true)
		case v.Kind() == reflect.String:
			v.SetString("1")
		default:
			t.Fatalf("give the field %s a value here", field.Name)
		}
	}
	return c
}

// Settings that the engine does not get, and the files that read them.
var settingsElsewhere = map[string]string{
	"CrashFile": "worker.go", "Metrics": "worker.go", "UnknownFunctionTimeout": "worker.go",
	"MaxOrchestrationActions": "registry.go", "HTTP": "registry.go",
}

func TestConfig_EachFieldIsUsed(t *testing.T) {
	other, base := reflect.ValueOf(otherConfig(t)), durable.Config{Version: "0.5"}
	for field := range reflect.TypeFor[durable.Config]().Fields() {
		changed := base
		reflect.ValueOf(&changed).Elem().FieldByIndex(field.Index).Set(other.FieldByIndex(field.Index))
		reaches := differ(durable.EngineConfig(base), durable.EngineConfig(changed))
		file, elsewhere := settingsElsewhere[field.Name]
		if reaches == elsewhere {
			t.Errorf("%s: reaches the engine: %t, is read elsewhere: %t", field.Name, reaches, elsewhere)
		}
		if !elsewhere {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(`\.` + field.Name + `\b`).Match(text) {
			t.Errorf("%s does not read %s", file, field.Name)
		}
	}
}

func TestConfig_SetsEachFieldOfTheEngine(t *testing.T) {
	ofWorker := map[string]bool{"FailUnknownAfter": true, "Blocked": true, "Stalls": true, "Crashes": true, "Meter": true}
	c := otherConfig(t)
	c.ExtendedSessionIdle = time.Hour
	for field, v := range reflect.ValueOf(durable.EngineConfig(c)).Fields() {
		if v.IsZero() != ofWorker[field.Name] {
			t.Errorf("%s: is set: %t, is set by the worker: %t", field.Name, !v.IsZero(), ofWorker[field.Name])
		}
	}
}

// differ reports whether two configurations of the engine differ. It compares functions by
// their results, and whether they are set.
func differ(a, b dispatch.Config) bool {
	for _, version := range []string{"", "0.4", "0.6", "2"} {
		if x, y := a.CheckVersion(version), b.CheckVersion(version); (x == nil) != (y == nil) {
			return true
		}
	}
	if (a.Lifecycle == nil) != (b.Lifecycle == nil) {
		return true
	}
	for _, c := range []*dispatch.Config{&a, &b} {
		c.CheckVersion, c.Lifecycle, c.Now, c.NewID = nil, nil, nil, nil
	}
	return !reflect.DeepEqual(a, b)
}
