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
	documented float64            // on Azure Storage, the most to expect of Durable Functions by its documentation; 0 if it does not say
	values     []float64          // tuned
	byDefault  []float64
	requests   []float64 // a second, to the storage account
	failure    error
}

// heading returns the head of the table of a hub.
func heading(hub string) string {
	if hub != azureHub {
		return "| workload | tuned | at the defaults | ratio | published | ratio |\n|---|--:|--:|--:|--:|--:|\n"
	}
	return "| workload | tuned | at the defaults | ratio | .NET on Azurite | ratio | documented | ratio | requests/s |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n"
}

// row returns the figure as a row of the table. A ratio is above one if it is
// better here.
func (f figure) row(hub string) string {
	cells := []string{f.name}
	if f.failure != nil {
		cells = append(cells, "failed: "+strings.ReplaceAll(f.failure.Error(), "\n", "; "), "", "")
	} else {
		byDefault := median(f.byDefault)
		cells = append(cells, f.among(f.values), f.among(f.byDefault), fmt.Sprintf("%.2f", f.ratio(byDefault, median(f.values))))
	}
	cells = append(cells, f.beside(f.published[hub])...)
	if hub == azureHub {
		cells = append(cells, f.beside(f.documented)...)
		rate := ""
		if len(f.requests) > 0 {
			rate = short(median(f.requests))
		}
		cells = append(cells, rate)
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

// beside returns the cells of another figure, which are empty if there is none.
func (f figure) beside(other float64) []string {
	switch {
	case other == 0:
		return []string{"", ""}
	case f.failure != nil:
		return []string{short(other) + " " + f.unit, ""}
	}
	return []string{short(other) + " " + f.unit, fmt.Sprintf("%.2f", f.ratio(median(f.values), other))}
}

// ratio is above one if the first is better.
func (f figure) ratio(one, other float64) float64 {
	if f.less {
		return other / one
	}
	return one / other
}

// among writes the median of values, and between which they are.
func (f figure) among(values []float64) string {
	return fmt.Sprintf("%s %s (%s–%s)", short(median(values)), f.unit, short(slices.Min(values)), short(slices.Max(values)))
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
