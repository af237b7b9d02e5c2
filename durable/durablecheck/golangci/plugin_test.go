package golangci_test

import (
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/durablecheck"
	_ "github.com/durablefunctions-go/durablefunctions/durable/durablecheck/golangci"
	"github.com/golangci/plugin-module-register/register"
)

func TestPlugin_IsDurablecheck(t *testing.T) {
	t.Parallel()
	create, err := register.GetPlugin("durablecheck")
	if err != nil {
		t.Fatal(err)
	}
	p, err := create(nil)
	if err != nil {
		t.Fatal(err)
	}
	analyzers, err := p.BuildAnalyzers()
	if err != nil || len(analyzers) != 1 || analyzers[0] != durablecheck.Analyzer {
		t.Errorf("analyzers %v, %v", analyzers, err)
	}
	if mode := p.GetLoadMode(); mode != register.LoadModeTypesInfo {
		t.Errorf("load mode %q", mode)
	}
	if _, err := create(map[string]any{"rules": "all"}); err == nil {
		t.Error("no error for settings, although durablecheck has none")
	}
}
