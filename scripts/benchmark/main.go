// Command benchmark runs typical workloads on a task hub, each several times, with a tuned and with the
// default configuration. It prints the medians and published figures. Run it through scripts/bench.
//
//	go run ./scripts/benchmark -hub embedded
//	go run ./scripts/benchmark -hub azure -connection UseDevelopmentStorage=true
//
// With -plot it draws tables of earlier runs instead: throughput.svg and latency.svg in a folder.
//
//	go run ./scripts/benchmark -plot bin bin/bench-*.md
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

func main() {
	o := options{}
	flag.StringVar(&o.hub, "hub", "embedded", "the hub's storage: embedded, relaxed (embedded without waiting for the disk), azure or log (partition logs in the account)")
	flag.StringVar(&o.connection, "connection", "UseDevelopmentStorage=true", "storage connection string of -hub azure and log")
	flag.StringVar(&o.dir, "dir", os.TempDir(), "folder for the files of embedded hubs")
	flag.IntVar(&o.runs, "runs", 5, "number of runs of each workload; the median is printed")
	flag.StringVar(&o.only, "only", "", "regular expression for the names of the workloads to run")
	flag.StringVar(&o.out, "o", "", "additional output file for the table")
	flag.BoolVar(&o.curve, "curve", false, "also measure hello sequences per second by the number in flight, and draw them as SVG next to -o")
	plots := flag.String("plot", "", "draw the tables in the files of the arguments into this `folder`, and run nothing")
	flag.Parse()
	if *plots != "" {
		if err := drawPlots(*plots, flag.Args()); err != nil {
			fmt.Fprintln(os.Stderr, "benchmark:", err)
			os.Exit(1)
		}
		return
	}
	if flag.NArg() > 0 || o.runs < 1 || o.curve && o.out == "" {
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
		return fmt.Errorf("-hub is %q; want embedded, relaxed, azure or log", o.hub)
	}
	r := &report{}
	r.printf("Hub %s, %d cores, %s, median of %d runs (lowest to highest)\n\n%s", o.hub, runtime.NumCPU(), runtime.Version(), o.runs, heading(o.hub))
	for _, w := range slices.Concat(workloads, entityWorkloads, growthWorkloads, largeWorkloads) {
		if !only.MatchString(w.name) || len(w.only) > 0 && !slices.Contains(w.only, o.hub) {
			continue
		}
		for _, f := range measure(ctx, o, open, w) {
			r.printf("%s", f.row(o.hub))
		}
	}
	if o.hub == azureHub {
		table, err := calibrate(ctx, o)
		if err != nil {
			return err
		}
		r.printf("%s", table)
	}
	if o.out == "" {
		return nil
	}
	if err := os.WriteFile(o.out, []byte(r.String()), 0o600); err != nil {
		return err
	}
	if !o.curve {
		return nil
	}
	fmt.Println()
	return drawCurve(ctx, o, open, strings.TrimSuffix(o.out, filepath.Ext(o.out))+".svg")
}

// report collects the text that it prints.
type report struct{ strings.Builder }

func (r *report) printf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	fmt.Print(text)
	r.WriteString(text)
}

// measure runs a workload and returns its figures. If a run fails, it returns a single figure with the error.
func measure(ctx context.Context, o options, open opener, w workload) []figure {
	all := map[setting][][]float64{}
	var requests []float64
	runs := o.runs
	if w.runs > 0 {
		runs = min(runs, w.runs)
	}
	for range runs {
		for _, as := range []setting{tuned, defaults} { // alternating, because the speed of the machine varies
			values, rate, err := once(ctx, o, open, w, as)
			if err != nil {
				return []figure{{name: w.name, failure: err}}
			}
			all[as] = append(all[as], values)
			if rate > 0 && as == tuned {
				requests = append(requests, rate)
			}
		}
	}
	var out []figure
	for i, what := range w.figures {
		f := what
		for _, values := range all[tuned] {
			f.values = append(f.values, values[i])
		}
		for _, values := range all[defaults] {
			f.byDefault = append(f.byDefault, values[i])
		}
		f.name = strings.TrimSpace(w.name + " " + what.name)
		if i == 0 {
			f.requests = requests
		}
		out = append(out, f)
	}
	return out
}

// once runs a workload on a new hub. It also returns the number of requests per second to the storage
// account.
func once(ctx context.Context, o options, open opener, w workload, as setting) (values []float64, requests float64, err error) {
	h, err := open(o, as)
	if err != nil {
		return nil, 0, err
	}
	r, err := start(ctx, h, as)
	if err != nil {
		return nil, 0, err
	}
	began, before := time.Now(), r.requests.count()
	values, err = w.run(ctx, r)
	requests = float64(r.requests.count()-before) / time.Since(began).Seconds()
	return values, requests, join(err, r.stop())
}
