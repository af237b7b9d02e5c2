// Command benchmark runs an engine's usual workloads on a task hub, each several
// times, and prints the medians beside published figures. Run it through
// scripts/bench.
//
//	go run ./scripts/benchmark -hub embedded
//	go run ./scripts/benchmark -hub azure -connection UseDevelopmentStorage=true
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

func main() {
	o := options{}
	flag.StringVar(&o.hub, "hub", "embedded", "what stores the hub: embedded, relaxed (embedded without waiting for the disk) or azure")
	flag.StringVar(&o.connection, "connection", "UseDevelopmentStorage=true", "storage connection string of -hub azure")
	flag.StringVar(&o.dir, "dir", os.TempDir(), "folder for the files of embedded hubs")
	flag.IntVar(&o.runs, "runs", 5, "how often each workload is run; the median counts")
	flag.StringVar(&o.only, "only", "", "regular expression for the names of the workloads to run")
	flag.StringVar(&o.out, "o", "", "file that the table is written to, besides standard output")
	flag.BoolVar(&o.curve, "curve", false, "measure sequences a second by how many are in flight, instead, and draw it as SVG into -o")
	flag.Parse()
	if flag.NArg() > 0 || o.runs < 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, "benchmark:", err)
		os.Exit(1)
	}
}

type options struct {
	hub, connection, dir, only, out string
	runs                            int
	curve                           bool
}

func run(ctx context.Context, o options) error {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	open, ok := hubs[o.hub]
	if !ok {
		return fmt.Errorf("-hub is %q: want embedded, relaxed or azure", o.hub)
	}
	if o.curve {
		return drawCurve(ctx, o, open)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Hub %s, %d cores, %s, median of %d runs (lowest to highest)\n\n", o.hub, runtime.NumCPU(), runtime.Version(), o.runs)
	fmt.Fprintf(&b, "| workload | here | published | ratio |\n|---|--:|--:|--:|\n")
	fmt.Print(b.String())
	for _, w := range slices.Concat(workloads, entityWorkloads) {
		if !only.MatchString(w.name) {
			continue
		}
		for _, f := range measure(ctx, o, open, w) {
			line := f.row(o.hub)
			fmt.Print(line)
			b.WriteString(line)
		}
	}
	if o.out == "" {
		return nil
	}
	return os.WriteFile(o.out, []byte(b.String()), 0o600)
}

// measure runs a workload and returns its figures. One that fails has a figure
// that says so.
func measure(ctx context.Context, o options, open opener, w workload) []figure {
	var all [][]float64
	for range o.runs {
		values, err := once(ctx, o, open, w)
		if err != nil {
			return []figure{{name: w.name, failure: err}}
		}
		all = append(all, values)
	}
	var out []figure
	for i, what := range w.figures {
		f := what
		for _, values := range all {
			f.values = append(f.values, values[i])
		}
		f.name = strings.TrimSpace(w.name + " " + what.name)
		out = append(out, f)
	}
	return out
}

// once runs a workload on a hub of its own.
func once(ctx context.Context, o options, open opener, w workload) (values []float64, err error) {
	h, err := open(o)
	if err != nil {
		return nil, err
	}
	r, err := start(ctx, h)
	if err != nil {
		return nil, err
	}
	values, err = w.run(ctx, r)
	return values, join(err, r.stop())
}
