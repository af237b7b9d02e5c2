package handler

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
)

func TestLogging_FormatIsTextOrJSON(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		format string
		json   bool
		notice string
	}{{"", false, ""}, {"TEXT", false, ""}, {"json", true, ""}, {"xml", false, `DURABLE_LOG_FORMAT is "xml"; want text or json`}} {
		cfg := configure(settings.Environment{LogFormat: tt.format}, settings.New(), []string{storageSetting})
		notices := strings.Join(cfg.Notices, "\n")
		if cfg.LogJSON != tt.json || !strings.Contains(notices, tt.notice) || tt.notice == "" && notices != "" {
			t.Errorf("%q: JSON %v, notices %q", tt.format, cfg.LogJSON, notices)
		}
	}
	var out bytes.Buffer
	NewJSONLogger(&out, slog.LevelInfo).Info("two\nlines", "instanceId", "i", "event", "FunctionCompleted")
	var record map[string]string
	if err := json.Unmarshal(out.Bytes(), &record); err != nil || bytes.Count(out.Bytes(), []byte("\n")) != 1 {
		t.Fatalf("%v: %s", err, &out)
	}
	if record["msg"] != "two\nlines" || record["level"] != "INFO" || record["instanceId"] != "i" || record["event"] != "FunctionCompleted" || record["time"] == "" {
		t.Errorf("the record is %v", record)
	}
}

// The page lists exactly the log events of the source, by their names in the .NET extension and with
// their levels.
func TestLogging_ThePageHasEachEvent(t *testing.T) {
	t.Parallel()
	const page = "../durable/docs/reference-metrics.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "<!-- log events -->\n")
	table, _, closed := strings.Cut(table, "<!-- end of log events -->\n")
	if !ok || !closed {
		t.Fatalf("%s has no table of log events", page)
	}
	listed := map[string]bool{} // whether the event is in the source
	levels := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?`) \\| (.*?) \\|").FindAllStringSubmatch(table, -1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			listed[strings.Trim(name, "`")] = false
			levels[strings.Trim(name, "`")] = row[2]
		}
	}
	logged := regexp.MustCompile(`(?:\.(Debug|Info|Warn|Error)|outine\.(note))\((?:ctx, )?(?:".*"event", )?"([A-Z]\w+)"`)
	attribute := regexp.MustCompile(`"event", "([A-Z]\w*[a-z][A-Z]\w+)"`)
	other := regexp.MustCompile(`"([A-Z]\w+)"`)
	err = filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || entry.IsDir() {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, found := range attribute.FindAllSubmatch(source, -1) {
			if _, ok := listed[string(found[1])]; !ok {
				t.Errorf("%s logs the event %s, which %s does not list", path, found[1], page)
			}
		}
		for _, found := range logged.FindAllStringSubmatch(string(source), -1) {
			level := strings.ToLower(found[1])
			if found[2] != "" {
				level = "debug, counted"
			}
			if row, ok := levels[found[3]]; ok && !strings.Contains(row, level) {
				t.Errorf("%s logs the event %s at %s; %s has %s", path, found[3], level, page, row)
			}
		}
		for _, found := range other.FindAllSubmatch(source, -1) {
			if _, ok := listed[string(found[1])]; ok {
				listed[string(found[1])] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, inSource := range listed {
		if !inSource {
			t.Errorf("%s lists the event %s, which nothing logs", page, name)
		}
	}
	if len(listed) < 45 {
		t.Errorf("%s lists %d events only", page, len(listed))
	}
}
