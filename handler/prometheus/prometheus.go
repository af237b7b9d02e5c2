// Package prometheus serves the metrics of an app to Prometheus. An app serves them if it sets the
// field Metrics:
//
//	handler.Main(handler.App{Registrations: functions, Metrics: prometheus.New()})
//
// Prometheus requests them at /metrics of each process. The page is for standalone apps, such as
// containers: behind the Functions host, a request reaches any one of the processes. If the app has a
// key, the request needs it, or the read-only key, as bearer token:
//
//	scrape_configs:
//	  - job_name: shop
//	    authorization: {credentials_file: /etc/prometheus/shop.key}
//	    static_configs: [{targets: ["10.0.0.4:8080", "10.0.0.5:8080"]}]
//
// The metrics have the names of [OpenTelemetry] with underscores, a unit and, for counters, "_total":
// durabletask.work_items is durabletask_work_items_total. The page also has the metrics of the Go
// runtime and of the process. However often it is requested, it makes storage requests at most once in
// 30 seconds.
//
// The file alerts.yml beside this package has alert rules, and dashboard.json a dashboard for Grafana.
//
// [OpenTelemetry]: https://github.com/durablefunctions-go/durablefunctions/blob/main/durable/docs/reference-metrics.md
package prometheus

import (
	"net/http"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
)

// A Page collects metrics and serves their current values. Create one with [New]. It is safe for
// concurrent use.
type Page struct {
	metric.MeterProvider // collects the metrics
	page                 http.Handler
}

// New returns a Page without metrics of an app.
func New() *Page {
	registry := client.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo())
	if err != nil {
		panic(err) // only if the registry had such a collector already
	}
	return &Page{
		MeterProvider: sdk.NewMeterProvider(sdk.WithReader(reader)),
		page:          promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}),
	}
}

// ServeHTTP writes the current values in the text format of Prometheus.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.page.ServeHTTP(w, r) }
