package settings

import (
	"testing"
	"time"
)

func TestParseTimeSpan_ReadsTheFormsOfHostJSON(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		want time.Duration
	}{
		{"00:05:00", 5 * time.Minute},
		{"0:5:0", 5 * time.Minute},
		{"23:59:59", 24*time.Hour - time.Second},
		{"1.00:00:00", 24 * time.Hour},
		{"7.12:30:15", 7*24*time.Hour + 12*time.Hour + 30*time.Minute + 15*time.Second},
		{"01:30", 90 * time.Minute},
		{"00:00:00.05", 50 * time.Millisecond},
		{"00:00:01.0000001", time.Second + 100},
		{" 00:00:30 ", 30 * time.Second},
	} {
		got, err := ParseTimeSpan(tt.text)
		if err != nil || got != tt.want {
			t.Errorf("parseTimeSpan(%q) = %v, %v, want %v", tt.text, got, err, tt.want)
		}
	}
}

func TestParseTimeSpan_RefusesOtherForms(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "5", "300", "30s", "24:00:00", "00:60:00", "00:00:60", "-00:05:00", "00:05:00:00", "a:b:c",
		"99999999.00:00:00", "00:00:00.00000001", "1.5", "٠٠:٠٥:٠٠",
	} {
		if got, err := ParseTimeSpan(text); err == nil {
			t.Errorf("parseTimeSpan(%q) = %v, want an error", text, got)
		}
	}
}

func FuzzParseTimeSpan(f *testing.F) {
	for _, seed := range []string{"00:05:00", "1.02:03:04.5", "106750.23:59:59.9999999", "24:00:00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseTimeSpan(text)
		if err != nil {
			return
		}
		again, err := ParseTimeSpan(FormatTimeSpan(d))
		if err != nil || again != d {
			t.Errorf("%q is %v, formatted %q, which is %v, %v", text, d, FormatTimeSpan(d), again, err)
		}
	})
}
