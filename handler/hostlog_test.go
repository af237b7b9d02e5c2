package handler

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
)

// hostSeverity returns the severity that the Functions host gives to a line of standard error.
func hostSeverity(line string) string {
	if strings.Contains(strings.ToLower(line), "warn") {
		return "Warning"
	}
	return "Error"
}

// hostileTexts are texts with the word that the host looks for.
var hostileTexts = []string{
	"warn", "WARN", "Warning: warned", "an error with warn in it", `C:\warn`, `"warn"`, "warn=warn", "\nwarn\x00", "wärn", "wwarnn", "w\\u0061rn", "\\warn", "\xffwarn", "<warn>&", "\u2028warn",
}

func TestProcessLogger_TheHostReadsTheLevelOfEachRecord(t *testing.T) {
	t.Parallel()
	for _, asJSON := range []bool{false, true} {
		var out, errs bytes.Buffer
		log := newProcessLogger(&Config{BehindHost: true, LogJSON: asJSON, LogLevel: slog.LevelDebug}, &out, &errs)
		for _, text := range hostileTexts {
			log := log.With("with", text, text, 1).WithGroup("warnings")
			for level, want := range map[slog.Level]string{slog.LevelWarn: "Warning", slog.LevelWarn + 1: "Warning", slog.LevelError: "Error", slog.LevelError + 1: "Error"} {
				errs.Reset()
				log.Log(t.Context(), level, text, "key", text, text, errors.New(text))
				if got := hostSeverity(errs.String()); got != want || strings.Count(errs.String(), "\n") != 1 {
					t.Errorf("JSON %v, level %v: the host reads %s, want %s: %s", asJSON, level, got, want, &errs)
				}
			}
			errs.Reset()
			log.Info(text)
			log.Debug(text)
			if errs.Len() > 0 {
				t.Errorf("standard error has %q", &errs)
			}
		}
		if n := strings.Count(out.String(), "\n"); n != 2*len(hostileTexts) {
			t.Errorf("standard output has %d lines, want %d", n, 2*len(hostileTexts))
		}
	}
}

func TestProcessLogger_EscapedErrorsHaveTheOriginalText(t *testing.T) {
	t.Parallel()
	for _, text := range hostileTexts {
		var line bytes.Buffer
		newProcessLogger(&Config{BehindHost: true, LogJSON: true}, nil, &line).Error(text, "key", text)
		var record, plain struct{ Msg, Key string }
		if err := json.Unmarshal(line.Bytes(), &record); err != nil {
			t.Fatalf("%v: %s", err, &line)
		}
		line.Reset()
		NewJSONLogger(&line, slog.LevelInfo).Error(text, "key", text)
		if err := json.Unmarshal(line.Bytes(), &plain); err != nil || record != plain {
			t.Errorf("%q: the record is %q, want %q (%v)", text, record, plain, err)
		}

		line.Reset()
		newProcessLogger(&Config{BehindHost: true}, nil, &line).Error(text)
		_, msg, _ := strings.Cut(strings.TrimSuffix(line.String(), "\n"), " msg=")
		got, err := strconv.Unquote(msg)
		if err != nil {
			got = msg
		}
		if got != text {
			t.Errorf("%q: the message is %q: %s", text, got, &line)
		}
	}
}

func TestProcessLogger_WritesAllToOneStreamWithoutHost(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := newProcessLogger(&Config{}, &out, nil)
	log.Error("a warning")
	log.Info("information")
	if got := out.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, `"a warning"`) {
		t.Errorf("the log is %q", got)
	}
}
