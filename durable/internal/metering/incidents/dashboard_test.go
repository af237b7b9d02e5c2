package incidents

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// promtool checks each expression in a recording rule, with values for the variables of the dashboard.
func TestDashboard_EachExpressionIsValid(t *testing.T) {
	t.Parallel()
	needsPromtool(t)
	text, err := os.ReadFile("../../../../handler/prometheus/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	var rules []any
	for _, p := range dashboard.Panels {
		if len(p.Targets) == 0 {
			t.Errorf("panel %s has no expression", p.Title)
		}
		for _, target := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "5m", "$job", ".+").Replace(target.Expr)
			rules = append(rules, map[string]string{"record": fmt.Sprintf("expression:%d", len(rules)), "expr": expr})
		}
	}
	groups, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(file, groups, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "promtool", "check", "rules", file).CombinedOutput(); err != nil || len(rules) == 0 {
		t.Errorf("promtool checks %d expressions: %v\n%s", len(rules), err, out)
	}
}
