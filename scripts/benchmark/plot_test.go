package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDrawPlots_ShowsEachStoreBesideItsPeers(t *testing.T) {
	folder := t.TempDir()
	var files []string
	for hub, rows := range map[string]string{
		"embedded": "| hello sequences, 64 in flight | 6081 /s (5563–6267) | 5912 /s (4856–6416) | 0.97 | 577 /s | 10.54 |\n" +
			"| one hello sequence p50 | 1.09 ms (1.03–1.26) | 1.08 ms (1.08–1.19) | 1.00 | 1.20 ms | 1.10 |\n",
		"azure": "| hello sequences, 64 in flight | 151 /s (92.2–162) | 146 /s (104–159) | 0.97 | 22.0 /s | 6.86 |  |  | 1830 |\n" +
			"| one hello sequence p50 | failed: refused |  |  | 95.0 ms |  |  |  |  |\n",
	} {
		file := filepath.Join(folder, hub+".md")
		if err := os.WriteFile(file, []byte("Hub "+hub+", 2 cores\n\n"+rows), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	if err := drawPlots(folder, files); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"throughput.svg": {">5912 /s<", ">577 /s<", ">146 /s<", ">22.0 /s<", ">.NET<"},
		"latency.svg":    {">1.08 ms<", ">1.20 ms<", ">95.0 ms<"},
	} {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range want {
			if !strings.Contains(string(text), part) {
				t.Errorf("%s lacks %s:\n%s", name, part, text)
			}
		}
		if n := strings.Count(string(text), `class="own"`) + strings.Count(string(text), `class="peer"`); n != len(want)-strings.Count(strings.Join(want, ""), ">.NET") {
			t.Errorf("%s has %d bars, want those of %q", name, n, want)
		}
		for d := xml.NewDecoder(strings.NewReader(string(text))); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s is not well-formed: %v", name, err)
			}
		}
	}
}

func TestReadTable_RefusesOtherFiles(t *testing.T) {
	if _, _, err := readTable("| a | b | c | d | e |\n"); err == nil {
		t.Error("a file without the name of a hub is accepted")
	}
}
