package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// bar is one value in a plot.
type bar struct {
	label string
	value float64
	peer  bool // a published figure of another engine
}

// panel compares the values of one workload in one column.
type panel struct {
	unit string
	bars []bar
}

// plotRow has a panel for each column.
type plotRow struct {
	title  string
	panels []panel
}

// plotted selects the rows of the tables for each plot, and gives them titles. The plots have values at the
// default settings.
var plotted = []struct {
	file, heading string
	rows          [][2]string // name in the table, title
}{
	{"throughput.svg", "Throughput: a longer bar is better", [][2]string{
		{"hello sequences, 64 in flight", "Sequences of three activities, 64 in flight"},
		{"hello sequences of steps, 64 in flight", "Sequences of three steps, 64 in flight"},
		{"500 activities in a row rate", "500 activities in a row"},
		{"500 steps in a row rate", "500 steps in a row"},
		{"empty orchestrations, 64 in flight", "Empty orchestrations, 64 in flight"},
		{"500 events to one instance", "Events to one instance"},
	}},
	{"latency.svg", "Duration: a shorter bar is better", [][2]string{
		{"one hello sequence p50", "One sequence of three activities, median"},
		{"one hello sequence of steps p50", "One sequence of three steps, median"},
		{"500 activities in a row", "500 activities in a row"},
		{"500 steps in a row", "500 steps in a row"},
		{"fan-out of 1,000 activities", "1,000 activities in parallel"},
		{"fan-out of 1,000 steps", "1,000 steps in parallel"},
	}},
}

// plotBar selects the values of a bar: the values of a hub, or its published figures.
type plotBar struct {
	hub, label string
	peer       bool
}

// plotColumns are the columns of a plot. Stores on a disk and stores on Azurite differ too much for one scale.
var plotColumns = []struct {
	title string
	bars  []plotBar
}{
	{"Local file", []plotBar{{"relaxed", "relaxed", false}, {"embedded", "default", false}, {"embedded", "other engines, SQLite", true}}},
	{"Storage account (Azurite)", []plotBar{{"log", "partition logs", false}, {"azure", "queues and tables", false}, {"azure", ".NET", true}}},
}

// table has the cells of a hub's table: values at the defaults and published values by the name of the row.
type table struct{ measured, published map[string]string }

var hubLine = regexp.MustCompile(`(?m)^Hub (\w+), `)

// readTable reads a table that this program wrote.
func readTable(text string) (hub string, t table, err error) {
	m := hubLine.FindStringSubmatch(text)
	if m == nil {
		return "", table{}, fmt.Errorf("no line matches %s", hubLine)
	}
	t = table{map[string]string{}, map[string]string{}}
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) < 5 {
			continue
		}
		name := strings.TrimSpace(cells[0])
		t.measured[name], t.published[name] = strings.TrimSpace(cells[2]), strings.TrimSpace(cells[4])
	}
	return m[1], t, nil
}

// drawPlots reads tables and writes the plots into a folder.
func drawPlots(folder string, files []string) error {
	tables := map[string]table{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		hub, t, err := readTable(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		tables[hub] = t
	}
	for _, p := range plotted {
		var rows []plotRow
		for _, names := range p.rows {
			row, empty := plotRow{title: names[1]}, true
			for _, column := range plotColumns {
				one := newPanel(tables, column.bars, names[0])
				row.panels, empty = append(row.panels, one), empty && len(one.bars) == 0
			}
			if !empty {
				rows = append(rows, row)
			}
		}
		if err := os.WriteFile(filepath.Join(folder, p.file), []byte(plotSVG(p.heading, rows)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// newPanel collects the values of a workload. It skips empty cells and failed workloads.
func newPanel(tables map[string]table, bars []plotBar, name string) (p panel) {
	for _, one := range bars {
		cell := tables[one.hub].measured[name]
		if one.peer {
			cell = tables[one.hub].published[name]
		}
		number, rest, _ := strings.Cut(cell, " ")
		value, err := strconv.ParseFloat(number, 64)
		if err != nil {
			continue
		}
		p.unit, _, _ = strings.Cut(rest, " ")
		p.bars = append(p.bars, bar{one.label, value, one.peer})
	}
	return p
}

const (
	plotWidth  = 960
	plotLabels = 160 // width of the labels of a column
	plotValues = 90  // width of the values of a column
	plotLine   = 20
)

// plotSVG draws rows below each other. The bars of a panel have a linear scale of their own. Colors follow the
// color scheme of the page.
func plotSVG(heading string, rows []plotRow) string {
	var b strings.Builder
	columnWidth, y := (plotWidth-12)/len(plotColumns), 60
	for i, column := range plotColumns {
		fmt.Fprintf(&b, `<text class="title" x="%d" y="%d">%s</text>`+"\n", 12+i*columnWidth+plotLabels, y-8, column.title)
	}
	for _, row := range rows {
		y += 24
		fmt.Fprintf(&b, `<text class="title" x="12" y="%d">%s</text>`+"\n", y, row.title)
		y += 6
		lines := 0
		for i, p := range row.panels {
			drawPanel(&b, p, 12+i*columnWidth+plotLabels, y, columnWidth-plotLabels-plotValues)
			lines = max(lines, len(p.bars))
		}
		y += plotLine * lines
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="13">`+"\n",
		plotWidth, y+12, plotWidth, y+12) + plotStyle +
		fmt.Sprintf(`<rect class="back" width="%d" height="%d"/><text x="12" y="26" font-size="15">%s</text>`+"\n", plotWidth, y+12, heading) +
		b.String() + "</svg>\n"
}

// drawPanel draws bars from x to the right, up to a width.
func drawPanel(b *strings.Builder, p panel, x, y, width int) {
	most := 0.0
	for _, one := range p.bars {
		most = max(most, one.value)
	}
	for i, one := range p.bars {
		class := "own"
		if one.peer {
			class = "peer"
		}
		top, length := y+i*plotLine, max(1, one.value/most*float64(width))
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%s</text><rect class="%s" x="%d" y="%d" width="%.1f" height="%d"/><text x="%.1f" y="%d">%s %s</text>`+"\n",
			x-8, top+14, one.label, class, x, top+3, length, plotLine-6, float64(x)+length+6, top+14, short(one.value), p.unit)
	}
}

// plotStyle has the colors of plots and curves.
const plotStyle = `<style>.back{fill:#fff}text{fill:#1f2328}.title{font-weight:bold}.own{fill:#2563eb}.peer{fill:#8b949e}.curve{stroke:#2563eb}
@media (prefers-color-scheme:dark){.back{fill:#0d1117}text{fill:#e6edf3}.own{fill:#58a6ff}.peer{fill:#6e7681}.curve{stroke:#58a6ff}}</style>
`
