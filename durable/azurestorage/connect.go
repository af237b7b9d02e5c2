package azurestorage

import (
	"context"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inbound"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inflight"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/jumpstart"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/leases"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/outbound"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/tracking"
)

// connect creates the parts of the hub and gives each part the others that it needs.
func (h *TaskHub) connect() {
	cfg := h.cfg
	rescan := store.NewNudge()
	superseded, refused := &recentExecutions{}, &startBlobs{}
	h.held = inflight.New(h.Monitor, h.services.QueuePace, inflight.Config{
		ControlQueueVisibilityTimeout: cfg.ControlQueueVisibilityTimeout, WorkItemQueueVisibilityTimeout: cfg.WorkItemQueueVisibilityTimeout,
		LeaseInterval: cfg.LeaseInterval,
	})
	h.instances = instances.New(instances.Config{
		TaskHub: cfg.TaskHub, HistoryTable: h.historyTable, RowTable: h.rowTable,
		Blobs: h.largeMessages, CacheBytes: cfg.HistoryCacheBytes, Tolerance: cfg.LastUpdatedTolerance, FirstWriteTimeout: h.held.ControlTimeout / 2,
		Ended: h.endings.announce, Log: h.Log,
	})
	h.leases = h.newLeases()
	h.appLease = leases.NewAppManager(h.leases)

	h.undecodable = &inbound.Undecodable{Monitor: h.Monitor, Queues: h.messageQueues(), Aside: h.aside, SetAside: cfg.SetAsideUndecodable}
	h.decoder = &inbound.Decoder{Undecodable: h.undecodable, Blobs: h.largeMessages}
	h.tracking = &tracker{enabled: cfg.Tracking, instances: h.instances, log: h.Log, queue: tracking.NewQueue(tracking.Queue{
		Queue: h.trackingQueue, Table: h.trackingTable,
		Base64: cfg.QueueEncoding == Base64, MaxPollingInterval: cfg.MaxQueuePollingInterval,
		VisibilityTimeout: func() time.Duration { return h.held.Stretched(h.held.ControlTimeout) },
		HoldBack:          h.undecodable.HoldBack, Health: h.Health,
	})}
	h.resources = &resources{
		storage: h.storage, Monitor: h.Monitor, leases: h.leases, tracking: h.tracking.queue,
		forget:   func() { h.instances.EvictAll(func(string) bool { return true }) },
		creation: make(chan struct{}, 1), deleted: store.NewNudge(),
	}

	h.inbox = inbound.NewInbox(cfg.WorkerID, cfg.ControlQueueBufferThreshold, h.held, h.decoder, &inbound.Disposer{
		Monitor: h.Monitor, Instances: h.instances, Resend: h.tracking.resend, Superseded: superseded.has, Refused: refused.remember,
	})
	polls := inbound.Polling{BatchSize: cfg.ControlQueueBatchSize, MaxInterval: cfg.MaxQueuePollingInterval}
	h.partitions = inbound.NewPartitions(h.inbox, h.controlQueues, polls, rescan, &h.tasks)
	for _, p := range h.partitions {
		h.leases.Partitions = append(h.leases.Partitions, p)
	}
	h.activities = inbound.NewActivityQueue(cfg.MaxConcurrentActivities, cfg.MaxQueuePollingInterval, h.workItems, h.decoder, h.held, &h.tasks)

	h.sender = &outbound.Sender{
		Monitor: h.Monitor, Held: h.held, Blobs: h.largeMessages, Base64: cfg.QueueEncoding == Base64,
		StartLost: rescan, ArmedFor: outbound.ArmedFor,
	}
	h.late = &lateRows{log: h.Log}
	h.committer = &committer{
		instances: h.instances, sender: h.sender, partitions: h.partitions, activities: h.activities,
		tracking: h.tracking, late: h.late, superseded: superseded,
	}
	h.starts = &starter{
		Monitor: h.Monitor, sender: h.sender, partitions: h.partitions, instances: h.instances, late: h.late, blobs: refused,
		jumpStart: cfg.JumpStart, records: &jumpstart.Records{Table: h.startTable, Blobs: h.largeMessages},
	}
	h.overdue = &overdueStarts{starts: h.starts, rescan: rescan}
	for i, p := range h.partitions {
		if cfg.JumpStart.Enabled {
			p.Background = append(p.Background, func(ctx, _ context.Context) { h.starts.jumpStarts(ctx, p) })
		}
		if cfg.Tracking && i == 0 {
			p.Background = append(p.Background, func(ctx, work context.Context) { h.tracking.queue.Run(ctx, work, p.IsListening) })
		}
	}
}

// newLeases returns the lease keeper of this worker. Its requests are not subject to the limit on
// concurrent requests, so renewals never wait for other work.
func (h *TaskHub) newLeases() *leases.Worker {
	cfg, s := h.cfg, h.services
	return &leases.Worker{
		ID: cfg.WorkerID, Kind: leases.Kind(cfg.PartitionManager), App: leases.App(cfg.AppLease), Names: h.names,
		Interval: cfg.LeaseInterval, AcquireInterval: cfg.LeaseAcquireInterval, DrainTimeout: cfg.DrainTimeout,
		Table:    store.NewTable(s.Leases, s.TableEndpoint, h.names.PartitionsTable()),
		Blobs:    store.NewContainer(s.LeaseBlobs, s.BlobEndpoint, h.names.LeaseContainer()),
		AppBlobs: h.appLeases,
		Clock:    h.Clock, TableLatency: s.TablePace.Latency, Missing: func(err error) { h.resources.markMissing(err) },
		Health: h.Health, Log: h.Log, Meter: h.Meter, Tasks: &h.tasks,
	}
}
