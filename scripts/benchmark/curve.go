package main

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// point is the throughput of hello sequences with a number of sequences in flight.
type point struct {
	inFlight int
	rate     float64
}

// drawCurve measures hello sequences per second for several numbers in flight, and draws the results as SVG.
func drawCurve(ctx context.Context, o options, open opener, file string) error {
	var points []point
	for n := 1; n <= 128; n *= 2 {
		w := workload{run: func(ctx context.Context, r *rig) ([]float64, error) { return perSecond(ctx, r, Hello, 1000, n) }}
		values, _, err := once(ctx, o, open, w, tuned)
		if err != nil {
			return err
		}
		points = append(points, point{n, values[0]})
		fmt.Printf("%4d in flight: %s sequences/s\n", n, short(values[0]))
	}
	return os.WriteFile(file, []byte(svg(o.hub, points)), 0o600)
}

// svg draws points, with one column for each doubling.
func svg(hub string, points []point) string {
	const width, height, left, bottom = 640, 360, 60, 40
	top := 0.0
	for _, p := range points {
		top = max(top, p.rate)
	}
	x := func(i int) float64 { return left + float64(i)*(width-left-20)/float64(max(1, len(points)-1)) }
	y := func(rate float64) float64 { return height - bottom - rate/top*(height-bottom-30) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	b.WriteString(plotStyle)
	fmt.Fprintf(&b, `<rect class="back" width="%d" height="%d"/><text x="%d" y="18">Hello sequences per second by the number in flight, hub %s</text>`+"\n", width, height, left, hub)
	var line []string
	for i, p := range points {
		line = append(line, fmt.Sprintf("%.1f,%.1f", x(i), y(p.rate)))
		fmt.Fprintf(&b, `<circle class="own" cx="%.1f" cy="%.1f" r="3"/><text x="%.1f" y="%.1f" text-anchor="middle">%s</text><text x="%.1f" y="%d" text-anchor="middle">%d</text>`+"\n",
			x(i), y(p.rate), x(i), y(p.rate)-8, short(p.rate), x(i), height-bottom+20, p.inFlight)
	}
	fmt.Fprintf(&b, `<polyline class="curve" fill="none" points="%s"/>`+"\n", strings.Join(line, " "))
	fmt.Fprintf(&b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="gray"/>`+"\n</svg>\n", left, height-bottom, width-20, height-bottom)
	return b.String()
}
