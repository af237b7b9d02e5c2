package handler

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
)

// Paths in host.json, spelled as the documentation does.
const (
	versionPath         = "version"
	routePrefixPath     = "extensions.http.routePrefix"
	durableTaskPath     = "extensions.durableTask"
	httpSettingsPath    = durableTaskPath + ".httpSettings"
	storagePath         = durableTaskPath + ".storageProvider"
	hubNamePath         = durableTaskPath + ".hubName"
	connectionNamePath  = storagePath + ".connectionName"
	connectionAliasPath = storagePath + ".connectionStringName"
	tablePartitionPath  = storagePath + ".useTablePartitionManagement"
	legacyPartitionPath = storagePath + ".useLegacyPartitionManagement"
)

// notYet are settings of the .NET extension that have no effect here, in lower
// case. They are told apart from those that nobody knows, which are probably
// misspelled.
var notYet = map[string]bool{
	"maxconcurrententityfunctions": true, "maxentityoperationbatchsize": true,
	"entitymessagereorderwindowinminutes": true, "rollbackentityoperationsonexceptions": true,
	"usegracefulshutdown": true, "useapplease": true, "appleaseoptions": true,
	"localrpcendpointenabled": true, "maxgrpcmessagesizeinbytes": true, "grpchttpclienttimeout": true,
	"storeinputsinorchestrationhistory": true, "throwstatusexceptionsonraiseevent": true,
	"useforwardedhost": true, "tracing": true, "notifications": true,
	"trackingstorenameprefix": true, "fetchlargemessagesautomatically": true, "allowreplayingterminalinstances": true,
}

// durableTask reads all of extensions.durableTask into cfg.
func (r *settingReader) durableTask(cfg *Config) {
	path := func(name string) string { return durableTaskPath + "." + name }
	storage := func(name string) string { return storagePath + "." + name }

	r.object(durableTaskPath)
	r.resolved(hubNamePath, func(s setting, name string) error {
		cfg.Storage.TaskHub = name
		if azurestorage.ValidateHubName(name) != nil {
			return s.wrongValue(hubNamePath, name, fmt.Sprintf("%d to %d letters and digits, the first a letter",
				azurestorage.MinHubNameLength, azurestorage.MaxHubNameLength))
		}
		return nil
	})
	r.whole(path("maxConcurrentActivityFunctions"), 1, 100_000, func(n int) {
		cfg.Worker.MaxConcurrentActivities = n
		cfg.Storage.MaxConcurrentActivities = n
	})
	r.whole(path("maxConcurrentOrchestratorFunctions"), 1, 100_000, func(n int) { cfg.Worker.MaxConcurrentOrchestrators = n })
	r.boolean(path("extendedSessionsEnabled"), func(b bool) { cfg.Worker.ExtendedSessions = b })
	r.whole(path("extendedSessionIdleTimeoutInSeconds"), 1, 86_400, func(n int) {
		cfg.Worker.ExtendedSessionIdle = time.Duration(n) * time.Second
	})
	r.choice(path("overridableExistingInstanceStates"), []string{"NonRunningStates", "AnyState"}, func(i int) {
		cfg.Overridable = []durable.OverridableStates{durable.NonRunningStates, durable.AnyState}[i]
	})
	r.text(path("defaultVersion"), func(s setting) { cfg.Worker.Version = durable.Version(strings.TrimSpace(s.text)) })
	matches := []durable.VersionMatchStrategy{durable.MatchNone, durable.MatchStrict, durable.MatchCurrentOrOlder}
	r.choice(path("versionMatchStrategy"), namesOf(matches), func(i int) { cfg.Worker.VersionMatch = matches[i] })
	failures := []durable.VersionFailureStrategy{durable.RejectMismatch, durable.FailMismatch}
	r.choice(path("versionFailureStrategy"), namesOf(failures), func(i int) { cfg.Worker.VersionFailure = failures[i] })
	r.whole(path("maxOrchestrationActions"), 1, 100_000_000, func(n int) { cfg.Worker.MaxOrchestrationActions = n })

	r.object(httpSettingsPath)
	r.whole(httpSettingsPath+".defaultAsyncRequestSleepTimeMilliseconds", 1, 86_400_000, func(n int) {
		cfg.Worker.HTTP.PollInterval = time.Duration(n) * time.Millisecond
	})

	r.object(storagePath)
	r.choice(storage("type"), []string{"AzureStorage"}, func(int) {})
	name := func(s string) { cfg.ConnectionName = s }
	r.connectionName(connectionAliasPath, name)
	r.connectionName(connectionNamePath, name)
	r.whole(storage("partitionCount"), 1, 16, func(n int) { cfg.Storage.PartitionCount = n })
	r.whole(storage("controlQueueBatchSize"), 1, 32, func(n int) { cfg.Storage.ControlQueueBatchSize = n })
	r.whole(storage("controlQueueBufferThreshold"), 1, 1000, func(n int) { cfg.Storage.ControlQueueBufferThreshold = n })
	r.span(storage("controlQueueVisibilityTimeout"), time.Minute, time.Hour, func(d time.Duration) {
		cfg.Storage.ControlQueueVisibilityTimeout = d
	})
	r.span(storage("workItemQueueVisibilityTimeout"), time.Minute, time.Hour, func(d time.Duration) {
		cfg.Storage.WorkItemQueueVisibilityTimeout = d
	})
	r.span(storage("maxQueuePollingInterval"), 50*time.Millisecond, time.Hour, func(d time.Duration) {
		cfg.Storage.MaxQueuePollingInterval = d
	})
	r.choice(storage("queueClientMessageEncoding"), []string{"UTF8", "Base64"}, func(i int) {
		cfg.Storage.QueueEncoding = []azurestorage.QueueEncoding{azurestorage.UTF8, azurestorage.Base64}[i]
	})
	r.partitionManager()
	for _, name := range []string{"trackingStoreConnectionName", "trackingStoreConnectionStringName"} {
		if s, ok := r.find(storage(name)); ok {
			r.problem(fmt.Errorf("%s is set, but a separate account for tables is not supported yet (%s)", storage(name), s.source))
		}
	}
	r.noticeUnread(durableTaskPath)
	r.noticeUnread(httpSettingsPath)
	r.noticeUnread(storagePath)
	if s, ok := r.found.lookup("durableTask"); ok && s.kind == kindObject {
		r.notices = append(r.notices, fmt.Sprintf("The setting durableTask has no effect where it stands (%s): it belongs under extensions.", s.source))
	}
}

// namesOf returns the names of values.
func namesOf[T fmt.Stringer](values []T) []string {
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = v.String()
	}
	return names
}

// partitionManager accepts the settings that choose the partitions table, the
// only partition manager there is yet, and refuses those that ask for another:
// two managers on one hub would run everything twice.
func (r *settingReader) partitionManager() {
	r.boolean(legacyPartitionPath, func(b bool) {
		if s, _ := r.find(legacyPartitionPath); b {
			r.problem(fmt.Errorf("%s is true, but the legacy partition manager is not supported yet: "+
				"leave it out, to use the partitions table (%s)", legacyPartitionPath, s.source))
		}
	})
	r.boolean(tablePartitionPath, func(b bool) {
		if s, _ := r.find(tablePartitionPath); !b {
			r.problem(fmt.Errorf("%s is false, but the blob partition managers are not supported yet: "+
				"leave it out, to use the partitions table (%s)", tablePartitionPath, s.source))
		}
	})
}

// version refuses a host.json of another shape than this package reads, as the
// host does.
func (r *settingReader) version() {
	if s, ok := r.find(versionPath); ok && (s.kind != kindString || s.text != "2.0") {
		r.problem(s.wrong(versionPath, `"2.0"`))
	}
}

// segments matches a route prefix: segments without anything that has a meaning
// in a route.
var segments = regexp.MustCompile(`^([A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*)?$`)

// routePrefix reads where all routes begin.
func (r *settingReader) routePrefix(cfg *Config) {
	r.text(routePrefixPath, func(s setting) {
		prefix := strings.Trim(s.text, "/")
		if !segments.MatchString(prefix) {
			r.problem(s.wrong(routePrefixPath, "segments of letters, digits and . _ ~ -"))
			return
		}
		cfg.RoutePrefix = prefix
	})
}

// noticeUnread remarks on each setting right below path that was not asked for.
func (r *settingReader) noticeUnread(path string) {
	for _, s := range r.found.children(path) {
		key := strings.ToLower(s.path)
		if r.asked[key] {
			continue
		}
		why := "is not a known setting"
		if notYet[key[strings.LastIndexByte(key, '.')+1:]] {
			why = "is not supported yet"
		}
		r.notices = append(r.notices, fmt.Sprintf("The setting %s %s and has no effect (%s).", s.path, why, s.source))
	}
}

// spanRange says in words which time spans are allowed.
func spanRange(low, high time.Duration) string {
	return fmt.Sprintf("a time span from %s to %s", formatTimeSpan(low), formatTimeSpan(high))
}

// wholeRange says in words which whole numbers are allowed.
func wholeRange(low, high int) string {
	return fmt.Sprintf("a whole number from %d to %d", low, high)
}
