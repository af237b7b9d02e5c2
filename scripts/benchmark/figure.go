package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
)

// A figure is what a workload came to, in each of its runs.
type figure struct {
	name, unit string
	less       bool               // less is better
	published  map[string]float64 // by hub
	values     []float64
	failure    error
}

// row returns the figure as a row of the table. The ratio is above one if it is
// better here.
func (f figure) row(hub string) string {
	if f.failure != nil {
		return fmt.Sprintf("| %s | failed: %s | | |\n", f.name, strings.ReplaceAll(f.failure.Error(), "\n", "; "))
	}
	values := slices.Sorted(slices.Values(f.values))
	middle := values[len(values)/2]
	here := fmt.Sprintf("%s %s (%s–%s)", short(middle), f.unit, short(values[0]), short(values[len(values)-1]))
	published, ok := f.published[hub]
	if !ok {
		return fmt.Sprintf("| %s | %s | | |\n", f.name, here)
	}
	ratio := middle / published
	if f.less {
		ratio = published / middle
	}
	return fmt.Sprintf("| %s | %s | %s %s | %.2f |\n", f.name, here, short(published), f.unit, ratio)
}

// short writes v with three digits that matter.
func short(v float64) string {
	if v == 0 {
		return "0"
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// residentMB returns how much memory the process has, in megabytes; 0 where the
// system does not tell.
func residentMB() (float64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if os.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc/self/statm holds %q", text)
	}
	pages, err := strconv.Atoi(fields[1])
	return float64(pages*os.Getpagesize()) / 1e6, err
}
