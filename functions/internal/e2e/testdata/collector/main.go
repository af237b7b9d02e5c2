// Command collector is an OpenTelemetry Collector that receives OTLP and forwards it over HTTP. It is a module of its
// own, so that the tests' collector does not add modules to the go.mod of the apps.
package main

import (
	"context"
	"log"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/otlphttpexporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry"
	"go.uber.org/zap"
)

func main() {
	collector := otelcol.NewCommand(otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{Command: "collector", Version: "test"},
		Factories: factories,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			DefaultScheme:     "file",
			ProviderFactories: []confmap.ProviderFactory{fileprovider.NewFactory()},
		}},
	})
	if err := collector.Execute(); err != nil {
		log.Fatal(err)
	}
}

// factories returns the components of the collector.
func factories() (f otelcol.Factories, err error) {
	f.Telemetry = telemetry.NewFactory(noConfig, telemetry.WithCreateLogger(newLogger))
	if f.Receivers, err = otelcol.MakeFactoryMap[receiver.Factory](otlpreceiver.NewFactory()); err != nil {
		return f, err
	}
	f.Exporters, err = otelcol.MakeFactoryMap[exporter.Factory](otlphttpexporter.NewFactory())
	return f, err
}

// noConfig returns the empty configuration of the collector's own telemetry, which consists only of its log. The
// collector's default telemetry needs 200 more packages, such as the SDK of AWS, to detect the platform.
func noConfig() component.Config { return &struct{}{} }

func newLogger(context.Context, telemetry.LoggerSettings, component.Config) (*zap.Logger, component.ShutdownFunc, error) {
	logger, err := zap.NewProduction()
	return logger, nil, err
}
