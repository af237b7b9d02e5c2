package durable

import "go.opentelemetry.io/otel/metric"

// Metrics records what a [Worker] does in an OpenTelemetry meter provider. It is a
// field of [Config]. The zero value disables metrics, at no cost.
//
//	durabletask.work_items          counter    by durabletask.type (orchestration, activity, entity),
//	                                           durabletask.task.name and durabletask.outcome
//	                                           (completed, failed, abandoned)
//	durabletask.work_items.active   up-down    by durabletask.type: items in flight
//	durabletask.work_item.duration  histogram  seconds, by the attributes of work_items
//	durabletask.activity.wait       histogram  seconds from schedule to run, by durabletask.task.name
//	durabletask.stalls              counter    code that did not yield, by durabletask.type,
//	                                           durabletask.task.name and durabletask.outcome
//	                                           (reported, given_up)
type Metrics struct{ Provider metric.MeterProvider }
