package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
)

// figure is a measured value of a workload, with one value for each run.
type figure struct {
	name, unit string
	less       bool               // lower is better
	published  map[string]float64 // by hub
	documented float64            // upper limit of Durable Functions on Azure Storage according to its documentation; 0 if not documented
	values     []float64          // tuned
	byDefault  []float64
	requests   []float64 // requests per second to the storage account
	failure    error
}

// heading returns the head of a hub's table.
func heading(hub string) string {
	if hub != azureHub {
		return "| workload | tuned | at the defaults | ratio | published | ratio |\n|---|--:|--:|--:|--:|--:|\n"
	}
	return "| workload | tuned | at the defaults | ratio | .NET on Azurite | ratio | documented | ratio | requests/s |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n"
}

// row returns the figure as a row of the table. A ratio above 1 means that this engine is better.
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

// beside returns the cells for a reference value. They are empty if other is 0.
func (f figure) beside(other float64) []string {
	switch {
	case other == 0:
		return []string{"", ""}
	case f.failure != nil:
		return []string{short(other) + " " + f.unit, ""}
	}
	return []string{short(other) + " " + f.unit, fmt.Sprintf("%.2f", f.ratio(median(f.values), other))}
}

// ratio returns a value above 1 if one is better than other.
func (f figure) ratio(one, other float64) float64 {
	if f.less {
		return other / one
	}
	return one / other
}

// among formats the median and the range of values.
func (f figure) among(values []float64) string {
	return fmt.Sprintf("%s %s (%s–%s)", short(median(values)), f.unit, short(slices.Min(values)), short(slices.Max(values)))
}

// short formats v with three significant digits.
func short(v float64) string {
	if v == 0 {
		return "0"
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// residentMB returns the resident memory of the process in MB; 0 on systems without /proc.
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
