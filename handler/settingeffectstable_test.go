package handler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
)

func settingEffects() []effect {
	return slices.Concat(hostEffects(), engineEffects(), storageEffects(), partitionEffects(), edgeEffects())
}

func hostEffects() []effect {
	return []effect{
		{path: "version", values: map[string]any{`"2.0"`: 200, `"1.0"`: 503}, see: func(a *settingsApp) any {
			return a.ask("GET", "instances", "").Code
		}},
		{path: "functionTimeout", hosted: true, values: map[string]any{`"00:01:00"`: 50 * time.Second, `"00:10:00"`: 590 * time.Second}, see: func(a *settingsApp) any {
			a.ask("GET", "instances", "") // waits for the start
			began := time.Now()
			invoke(a.server, "Run", manualBody)
			return time.Since(began)
		}},
		{path: "extensions.http.routePrefix", values: map[string]any{`"api"`: 200, `"mine"`: 404}, see: func(a *settingsApp) any {
			return a.ask("GET", "instances", "").Code
		}},
		{path: "hubName", values: map[string]any{`"One"`: "one-control-00", `"Two"`: "two-control-00"}, see: func(a *settingsApp) any {
			a.start("Quick/i", "", time.Second)
			return a.account.Queues()[0]
		}},
		{path: "overridableExistingInstanceStates", either: true, values: map[string]any{`"NonRunningStates"`: 409, `"AnyState"`: 202}, see: func(a *settingsApp) any {
			a.start("Wait/i", "", time.Minute)
			return a.start("Wait/i", "", time.Minute)
		}},
	}
}

func engineEffects() []effect {
	peak := func(what string) func(*settingsApp) any {
		return func(a *settingsApp) any {
			switch what {
			case "activity":
				a.start("Fan/i", "5", 0)
			case "lift":
				a.start("Haul/i", "", 0)
			case "orchestrator":
				for range 5 {
					a.start("Hold", "", 0)
				}
			case "entity":
				for _, key := range []string{"a", "b", "c", "d", "e"} {
					a.ask("POST", "entities/Napper/"+key+"?op=nap", "1")
				}
			}
			time.Sleep(3 * time.Minute)
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.peaks[what]
		}
	}
	// runs raises events 15 seconds apart, and the last one after 45 seconds.
	runs := func(a *settingsApp) any {
		a.start("Wait/i", "", 15*time.Second)
		for _, passes := range []time.Duration{15 * time.Second, 45 * time.Second, 0} {
			a.ask("POST", "instances/i/raiseEvent/E", "null")
			time.Sleep(passes)
		}
		time.Sleep(45 * time.Second)
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.runs
	}
	version := func(a *settingsApp) any {
		a.start("Version/i?version=1.5", "", time.Minute)
		return a.status().RuntimeStatus
	}
	return []effect{
		{path: "maxOrchestrationActions", either: true, values: map[string]any{`2`: "Failed", `3`: "Completed"}, see: func(a *settingsApp) any {
			a.start("Fan/i", "3", time.Minute)
			return a.status().RuntimeStatus
		}},
		{path: "unknownFunctionTimeout", either: true, values: map[string]any{`"00:01:00"`: "Failed", `"00:20:00"`: "Pending"}, see: func(a *settingsApp) any {
			a.start("Nobody/i", "", 5*time.Minute)
			return a.status().RuntimeStatus
		}},
		{path: "failUnknownFunctions", either: true, with: []string{"unknownFunctionTimeout=00:01:00"}, values: map[string]any{`true`: "Failed", `false`: "Running"}, see: func(a *settingsApp) any {
			a.start("Lost/i", "", 10*time.Minute)
			return a.status().RuntimeStatus
		}},
		{path: "onNonDeterminism", either: true, with: []string{"extendedSessionsEnabled=false"}, values: map[string]any{`"fail"`: "Failed", `"hold"`: "Running"}, see: func(a *settingsApp) any {
			a.start("Fickle/i", "", 10*time.Minute)
			return a.status().RuntimeStatus
		}},
		{path: "orchestratorStallTimeout", either: true, values: map[string]any{`"00:00:05"`: "Pending", `"00:00:20"`: "Completed"}, see: func(a *settingsApp) any {
			a.start("Hold/i", "", time.Minute) // it runs for 10 s
			return a.status().RuntimeStatus
		}},
		{path: "storeInputsInOrchestrationHistory", either: true, values: map[string]any{`true`: true, `false`: false}, see: func(a *settingsApp) any {
			a.start("Fan/i", "1", time.Minute)
			return strings.Contains(a.ask("GET", "instances/i?showHistory=true", "").Body.String(), `"FunctionName":"Nap","Input":"[7]"`)
		}},
		{path: "maxConcurrentActivityFunctions", either: true, values: map[string]any{`2`: 2, `4`: 4}, see: peak("activity")},
		{path: "maxConcurrentOrchestratorFunctions", either: true, values: map[string]any{`2`: 2, `4`: 4}, see: peak("orchestrator")},
		{path: "maxConcurrentPayloadMegabytes", either: true, values: map[string]any{`1`: 1, `8`: 3}, see: peak("lift")},
		{path: "maxConcurrentEntityFunctions", either: true, values: map[string]any{`2`: 2, `4`: 4}, see: peak("entity")},
		{path: "maxEntityOperationBatchSize", values: map[string]any{`1`: 3, `100`: 1}, see: func(a *settingsApp) any {
			a.ask("POST", "entities/Napper/e?op=nap", "1")
			time.Sleep(time.Second) // the first operation runs when the others arrive
			for range 3 {
				a.ask("POST", "entities/Napper/e?op=nap", "1")
			}
			time.Sleep(14 * time.Second)
			before := a.number("(POST|PUT|PATCH) .*Instances.*@napper@e")
			time.Sleep(time.Minute)
			return a.number("(POST|PUT|PATCH) .*Instances.*@napper@e") - before
		}},
		{
			// Another entity receives the second of two messages without the first. Further messages
			// follow later.
			path: "entityMessageReorderWindowInMinutes", with: []string{"storageProvider.partitionCount=1"},
			values: map[string]any{`0`: "3, without a date", `7`: "3, with a date", `30`: "2, with a date"}, see: func(a *settingsApp) any {
				a.start("Signal", `"e"`, time.Minute)
				messages, _ := a.requests("^POST .*<MessageText>(.*@napper@e.*)</MessageText>")
				second := html.UnescapeString(messages[0])
				if strings.Contains(second, `Predecessor\":\"0001`) { // messages are sent in any order
					second = html.UnescapeString(messages[1])
				}
				a.account.Put("testhubname-control-00", strings.Replace(second, "@napper@e", "@napper@other", 1), 0)
				time.Sleep(20 * time.Minute)
				a.start("Signal", `"other"`, time.Minute)
				dated := "without"
				if strings.Contains(second, `Timestamp\":\"2000`) {
					dated = "with"
				}
				return fmt.Sprintf("%s, %s a date", bytes.TrimSpace(a.ask("GET", "entities/Napper/other", "").Body.Bytes()), dated)
			},
		},
		{path: "rollbackEntityOperationsOnExceptions", either: true, values: map[string]any{`true`: 404, `false`: 200}, see: func(a *settingsApp) any {
			a.ask("POST", "entities/Napper/e?op=fail", "1")
			time.Sleep(time.Minute)
			return a.ask("GET", "entities/Napper/e", "").Code
		}},
		{path: "extendedSessionsEnabled", either: true, with: []string{"extendedSessionIdleTimeoutInSeconds=60"}, values: map[string]any{`true`: 1, `false`: 4}, see: runs},
		{path: "extendedSessionIdleTimeoutInSeconds", either: true, with: []string{"extendedSessionsEnabled=true"}, values: map[string]any{`60`: 1, `20`: 2}, see: runs},
		{path: "defaultVersion", either: true, values: map[string]any{`"1.0"`: "1.0", `"2.0"`: "2.0"}, see: func(a *settingsApp) any {
			a.start("Version/i", "", time.Minute)
			return a.status().Output
		}},
		{
			path: "versionMatchStrategy", either: true, with: []string{"defaultVersion=2.0"},
			values: map[string]any{`"Strict"`: "Pending", `"CurrentOrOlder"`: "Completed"}, see: version,
		},
		{
			path: "versionFailureStrategy", either: true, with: []string{"defaultVersion=1.0"},
			values: map[string]any{`"Reject"`: "Pending", `"Fail"`: "Failed"}, see: version,
		},
	}
}

// inLogs stores the hub in partition logs.
const inLogs = "storageProvider.type=partitionLog"

func storageEffects() []effect {
	// A copy of the hub waits for a message that another worker has hidden.
	hidden := func(a *settingsApp) any {
		a.start("Quick/i", "", 0)
		queue := "https://sim.queue.core.windows.net/" + a.first("^POST [^/]*/([^/]*-control-..)/")
		receive, err := http.NewRequestWithContext(a.Context(), http.MethodGet, queue+"/messages?visibilitytimeout=36000", nil)
		if err != nil {
			a.Fatal(err)
		}
		answer, err := a.account.Worker("other").Do(receive)
		if err != nil || answer.StatusCode != http.StatusOK {
			a.Fatal(answer, err)
		}
		_ = answer.Body.Close() // the answer is in memory
		from, err := a.server.openProvider()
		if err != nil {
			a.Fatal(err)
		}
		to, err := hubCopy{a.cfg}.target(a.Context(), "embedded:"+filepath.Join(a.cfg.Root, "copy.db"))
		if err != nil {
			a.Fatal(err)
		}
		began := time.Now()
		_, err = provider.CopyHub(a.Context(), from.(provider.Portable), to.hub, provider.ExportOptions{}, nil)
		if _, ok := errors.AsType[*azurestorage.HiddenError](err); !ok {
			a.Error(err)
		}
		_ = to.finish(false)
		return time.Since(began).Truncate(time.Minute)
	}
	return []effect{
		{path: "storageProvider.type", values: map[string]any{`"AzureStorage"`: "queues", `"embedded"`: "a file", `"partitionLog"`: "logs"}, see: func(a *settingsApp) any {
			a.start("Quick/i", "", time.Minute)
			if a.status().RuntimeStatus != "Completed" {
				return "nothing"
			}
			switch {
			case a.number(`^POST .*-control-`) > 0:
				return "queues"
			case a.number(`^PUT .*/testhubname-log/p../log-`) > 0:
				return "logs"
			}
			return "a file"
		}},
		{path: "storageProvider.path", with: []string{"storageProvider.type=embedded"}, values: map[string]any{`"one.db"`: true, `"two.db"`: false}, see: func(a *settingsApp) any {
			a.start("Quick/i", "", time.Second)
			_, err := os.Stat(filepath.Join(a.cfg.Root, "one.db"))
			return err == nil
		}},
		{
			// The journal marks writes that are acknowledged without a sync.
			path: "storageProvider.relaxedDurability", with: []string{"storageProvider.type=embedded", "storageProvider.path=hub.db"},
			values: map[string]any{`true`: byte(1), `false`: byte(0)}, see: func(a *settingsApp) any {
				a.start("Quick/i", "", time.Second)
				journal, err := os.ReadFile(filepath.Join(a.cfg.Root, "hub.db.journal-0"))
				if err != nil {
					a.Fatal(err)
				}
				return journal[16]
			},
		},
		{
			path: "storageProvider.allowNetworkFile", with: []string{"storageProvider.type=embedded", "storageProvider.path=hub.db"},
			values: map[string]any{`true`: true, `false`: false}, see: func(a *settingsApp) any {
				return a.cfg.embeddedConfig().AllowNetworkFile // tests run on local file systems
			},
		},
		{path: "storageProvider.connectionName", values: map[string]any{`"Storage"`: false, `"Second"`: true}, see: func(a *settingsApp) any {
			a.start("Quick/i", "", time.Second)
			return a.number(`^PUT second\.queue\.`) > 0
		}},
		{path: "storageProvider.partitionCount", values: map[string]any{`1`: 1, `7`: 7}, see: func(a *settingsApp) any {
			a.start("Quick/i", "", time.Second)
			return a.number(`^PUT .*-control-\d\d `)
		}},
		{path: "storageProvider.partitionLeaseInterval", with: []string{inLogs}, values: map[string]any{`"00:00:20"`: "20", `"00:00:45"`: "45"}, see: func(a *settingsApp) any {
			a.start("Quick/i", "", time.Minute)
			return a.first(`(?i)^PUT .*/log-.*x-ms-lease-action:\[acquire.*x-ms-lease-duration:\[(\d+)`)
		}},
		{path: "storageProvider.controlQueueBatchSize", values: map[string]any{`5`: "5", `32`: "32"}, see: func(a *settingsApp) any {
			a.start("Quick/i", "", time.Minute)
			return a.first(`^GET .*-control-.*numofmessages=(\d+)`)
		}},
		{
			path: "storageProvider.controlQueueBufferThreshold", with: []string{"maxConcurrentOrchestratorFunctions=1", "storageProvider.partitionCount=1"},
			values: map[string]any{`10`: 10, `20`: 20}, see: func(a *settingsApp) any {
				for range 30 {
					a.start("Hold", "", 0)
				}
				time.Sleep(5 * time.Second)
				held := 0
				for _, m := range a.account.Messages("testhubname-control-00") {
					if m.VisibleAt.After(time.Now()) {
						held++
					}
				}
				return held
			},
		},
		{
			path: "storageProvider.controlQueueVisibilityTimeout", idle: true, with: []string{"storageProvider.workItemQueueVisibilityTimeout=00:01:00"},
			values: map[string]any{`"00:01:00"`: time.Minute, `"00:07:00"`: 7 * time.Minute}, see: hidden,
		},
		{
			path: "storageProvider.workItemQueueVisibilityTimeout", idle: true, with: []string{"storageProvider.controlQueueVisibilityTimeout=00:01:00"},
			values: map[string]any{`"00:01:00"`: time.Minute, `"00:07:00"`: 7 * time.Minute}, see: hidden,
		},
		{path: "storageProvider.maxQueuePollingInterval", values: map[string]any{`"00:00:05"`: 5 * time.Second, `"00:00:20"`: 20 * time.Second}, see: func(a *settingsApp) any {
			time.Sleep(10 * time.Minute)
			return a.lately("^GET .*-workitems/messages[?]numof")
		}},
		{path: "storageProvider.lastUpdatedTolerance", values: map[string]any{`"00:00:00"`: true, `"00:01:00"`: false}, see: func(a *settingsApp) any {
			a.start("Chain/i", "5", time.Minute)
			return a.number("^(POST|PUT|PATCH) .*Instances") > 6
		}},
		{path: "storageProvider.historyCacheMegabytes", with: []string{"extendedSessionsEnabled=false"}, values: map[string]any{`0`: true, `64`: false}, see: func(a *settingsApp) any {
			a.start("Chain/i", "5", time.Minute)
			return a.number("^GET .*History") > 1
		}},
		{path: "storageProvider.queueClientMessageEncoding", values: map[string]any{`"UTF8"`: false, `"Base64"`: true}, see: func(a *settingsApp) any {
			a.start("Chain/i", "5", time.Minute) // its timers are queue messages; a start may be delivered directly
			return a.number("^POST .*-control-.*<MessageText>ey") > 0
		}},
		{path: "storageProvider.trackingStoreConnectionName", values: map[string]any{`""`: false, `"Second"`: true}, see: func(a *settingsApp) any {
			a.start("Quick/i", "", time.Second)
			return a.number(`second\.table\.`) > 0 && a.number(`second\.queue\.`) == 0
		}},
		{
			path: "storageProvider.trackingStoreNamePrefix", with: []string{"storageProvider.trackingStoreConnectionName=Second"},
			values: map[string]any{`"One"`: true, `"Two"`: false}, see: func(a *settingsApp) any {
				a.start("Quick/i", "", time.Second)
				return slices.Contains(a.account.Tables(), "OneInstances")
			},
		},
	}
}

func partitionEffects() []effect {
	const (
		lease   = `(?i)^PUT .*-applease.comp=lease.*x-ms-lease-action:\[`
		records = "^GET .*JumpStart"
	)
	ran := func(what func(*settingsApp) any) func(*settingsApp) any {
		return func(a *settingsApp) any {
			a.start("Quick/i", "", time.Minute)
			return what(a)
		}
	}
	return []effect{
		{path: "storageProvider.useTablePartitionManagement", values: map[string]any{`true`: true, `false`: false}, see: ran(func(a *settingsApp) any {
			return slices.Contains(a.account.Tables(), "TestHubNamePartitions")
		})},
		{
			path: "storageProvider.useLegacyPartitionManagement", with: []string{"storageProvider.useTablePartitionManagement=false"},
			values: map[string]any{`true`: 0, `false`: 4}, see: ran(func(a *settingsApp) any { return a.number("(?i)/ownership/.*action:.acquire") }),
		},
		{path: "useAppLease", values: map[string]any{`true`: true, `false`: false}, see: ran(func(a *settingsApp) any { return a.number(lease+"acquire") > 0 })},
		{path: "appLeaseOptions.acquireInterval", values: map[string]any{`"00:00:30"`: 30 * time.Second, `"00:02:00"`: 2 * time.Minute}, see: ran(func(a *settingsApp) any {
			other := a.cfg
			other.Storage.AppLease.AppName, other.Storage.WorkerID = "other", "other"
			other.Storage.Transport = a.recorded(a.account.Worker("other").Do)
			ctx, stop := context.WithTimeout(a.Context(), 10*time.Minute)
			defer stop()
			if err := New(App{}, other).work(ctx); err != nil {
				a.Error(err)
			}
			return a.lately(lease + "acquire")
		})},
		{path: "appLeaseOptions.leaseInterval", values: map[string]any{`"00:00:30"`: "30", `"00:00:50"`: "50"}, see: ran(func(a *settingsApp) any {
			return a.first(lease + `acquire.*x-ms-lease-duration:\[(\d+)`)
		})},
		{path: "appLeaseOptions.renewInterval", values: map[string]any{`"00:00:10"`: 10 * time.Second, `"00:00:20"`: 20 * time.Second}, see: ran(func(a *settingsApp) any {
			return a.lately(lease + "renew")
		})},
		{path: "storageProvider.setAsideUndecodableMessages", values: map[string]any{`true`: true, `false`: false}, see: ran(func(a *settingsApp) any {
			a.account.Put("testhubname-control-00", "nonsense", 10)
			time.Sleep(20 * time.Minute)
			return slices.Contains(a.account.Queues(), "testhubname-control-00-poison")
		})},
		{path: "storageProvider.trackingEnabled", values: map[string]any{`true`: true, `false`: false}, see: ran(func(a *settingsApp) any {
			return slices.Contains(a.account.Tables(), "InstanceHistory00TestHubName")
		})},
		{path: "storageProvider.jumpStartEnabled", values: map[string]any{`true`: true, `false`: false}, see: ran(func(a *settingsApp) any {
			return a.number("^POST .*JumpStart") > 0
		})},
		{
			path: "storageProvider.jumpStartInterval", with: []string{"storageProvider.jumpStartEnabled=true", "storageProvider.partitionCount=1"},
			values: map[string]any{`"00:00:07"`: 7 * time.Second, `"00:00:20"`: 20 * time.Second}, see: ran(func(a *settingsApp) any { return a.lately(records) }),
		},
		{
			path: "storageProvider.jumpStartTimeout", with: []string{"storageProvider.jumpStartEnabled=true"},
			values: map[string]any{`"00:02:00"`: 2 * time.Minute, `"00:05:00"`: 5 * time.Minute}, see: func(a *settingsApp) any {
				a.ask("GET", "instances", "") // waits for the start
				client, w := a.cfg, a.account.Worker("client")
				client.Storage.Transport = recorded(func(r *http.Request) (*http.Response, error) {
					if r.Method == http.MethodPost && strings.Contains(r.URL.Path, "-control-") {
						w.Kill()
					}
					return w.Do(r)
				})
				began := time.Now()
				call(readyServer(a.T, App{}, client), "POST", managed+"orchestrators/Quick/i", "")
				for a.status().RuntimeStatus != "Completed" && time.Since(began) < time.Hour {
					time.Sleep(time.Second)
				}
				return time.Since(began).Round(time.Minute)
			},
		},
	}
}

func edgeEffects() []effect {
	const (
		topic = "^POST topic.example.*"
		file  = "storageProvider.type=embedded"
	)
	grid := func(member string) string { return "notifications.eventGrid." + member }
	endpoint, key := grid("topicEndpoint=https://topic.example/api"), grid("keySettingName=TOPIC_KEY")
	// published runs an instance and returns what the requests to the topic contain.
	published := func(name, pattern string, answers ...int) func(a *settingsApp) any {
		return func(a *settingsApp) any {
			a.answers = append(a.answers[:0], answers...)
			a.start(name+"/i", "", 45*time.Minute)
			texts, _ := a.requests(topic + pattern)
			return strings.Join(texts, " ")
		}
	}
	return []effect{
		{path: "httpSettings.defaultAsyncRequestSleepTimeMilliseconds", with: []string{file}, values: map[string]any{`20000`: 20 * time.Second, `90000`: 90 * time.Second}, see: func(a *settingsApp) any {
			a.answers = []int{http.StatusAccepted, http.StatusOK}
			a.start("Ask/i", "", 5*time.Minute)
			return a.lately("^GET (one|other).example")
		}},
		{path: "httpSettings.crossOriginHeaders", with: []string{file}, values: map[string]any{`["X-Trace"]`: 1, `["X-Other"]`: 0}, see: func(a *settingsApp) any {
			a.answers = []int{http.StatusAccepted, http.StatusOK}
			a.start("Ask/i", "", 5*time.Minute)
			return a.number("^GET other.example.*X-Trace:.me")
		}},
		{path: "httpSettings.useForwardedHost", with: []string{file}, values: map[string]any{`true`: true, `false`: false}, see: func(a *settingsApp) any {
			w := a.ask("POST", "orchestrators/Quick", "", "X-Forwarded-Host", "shop.example")
			return strings.Contains(w.Body.String(), "shop.example")
		}},
		{path: "httpSettings.maxRequestBodyMegabytes", with: []string{file}, values: map[string]any{`1`: 413, `2`: 202}, see: func(a *settingsApp) any {
			return a.start("Quick", `"`+strings.Repeat("x", 3<<19)+`"`, time.Second)
		}},
		{path: "httpSettings.maxRequestBodiesMegabytes", with: []string{file, "httpSettings.maxRequestBodyMegabytes=1"}, values: map[string]any{`1`: 503, `2`: 202}, see: func(a *settingsApp) any {
			body := `"` + strings.Repeat("x", 3<<18) + `"`
			go call(a.server, http.MethodPost, "/api/hold", body)
			time.Sleep(time.Minute)
			return a.start("Quick", body, time.Second)
		}},
		{path: grid("topicEndpoint"), with: []string{file, key}, values: map[string]any{`"https://topic.example/api"`: "/api /api", `"https://topic.example/2"`: "/2 /2"}, see: published("Quick", "(/(?:api|2)) ", 200)},
		{path: grid("keySettingName"), with: []string{file, endpoint}, values: map[string]any{`"TOPIC_KEY"`: "one one", `"OTHER_KEY"`: "two two"}, see: published("Quick", `(?i)aeg-sas-key:.(\w+)`, 200)},
		{path: grid("publishRetryCount"), with: []string{file, endpoint, key}, values: map[string]any{`0`: 2, `3`: 8}, see: func(a *settingsApp) any {
			published("Quick", "", 503)(a)
			return a.number(topic)
		}},
		{path: grid("publishRetryInterval"), with: []string{file, endpoint, key, grid("publishRetryCount=3")}, values: map[string]any{`"00:00:30"`: 30 * time.Second, `"00:10:00"`: 10 * time.Minute}, see: func(a *settingsApp) any {
			published("Quick", "", 503)(a)
			return a.lately(topic)
		}},
		{path: grid("publishRetryHttpStatus"), with: []string{file, endpoint, key, grid("publishRetryCount=1")}, values: map[string]any{`[400]`: 4, `[401]`: 2}, see: func(a *settingsApp) any {
			published("Quick", "", 400)(a)
			return a.number(topic)
		}},
		{
			path: grid("publishEventTypes"), with: []string{file, endpoint, key},
			values: map[string]any{`["Started"]`: "Running", `["Completed", "Failed"]`: "Failed"}, see: published("Broken", `"runtimeStatus":"(\w+)"`, 200),
		},
	}
}

// variableEffects are the effects of environment variables, with two values each.
func variableEffects() []effect {
	code := func(path string) func(*settingsApp) any {
		return func(a *settingsApp) any { return call(a.server, "GET", path, "").Code }
	}
	limit := func(a *settingsApp) any {
		a.ask("GET", "instances", "") // waits for the start
		began := time.Now()
		invoke(a.server, "Run", manualBody)
		return time.Since(began)
	}
	const whole, consumption = 30*time.Minute - 10*time.Second, 5*time.Minute - 10*time.Second
	return []effect{
		{variable: "FUNCTIONS_CUSTOMHANDLER_PORT", values: map[string]any{"": 200, "7071": 404}, see: code(web.WebhookPath + "/instances")},
		{variable: "DURABLE_READ_KEY", values: map[string]any{"": 200, theKey: 503}, see: code(managed + "instances")}, // DURABLE_READ_KEY requires DURABLE_KEY
		{variable: "DURABLE_KEY", values: map[string]any{"": 200, theKey: 401}, see: code(managed + "instances")},
		{variable: "WEBSITE_HOSTNAME", hosted: true, values: map[string]any{"one.example": true, "two.example": false}, see: func(a *settingsApp) any {
			return strings.Contains(a.ask("POST", "orchestrators/Quick", "", "Host", "").Body.String(), "//one.example/")
		}},
		{variable: "WEBSITE_SLOT_NAME", values: map[string]any{"Production": 200, "staging": 503}, see: code(managed + "instances")},
		{variable: "WEBSITE_SITE_NAME", values: map[string]any{"one": "one-control-00", "two": "two-control-00"}, see: func(a *settingsApp) any {
			a.start("Quick/i", "", time.Second)
			return a.account.Queues()[0]
		}},
		{
			variable: "WEBSITE_SKU", hosted: true, process: settings.Environment{SiteName: "site"},
			values: map[string]any{"ElasticPremium": whole, "Dynamic": consumption}, see: limit,
		},
		{
			variable: "CONTAINER_NAME", hosted: true, process: settings.Environment{SiteName: "site"},
			values: map[string]any{"": whole, "c": consumption}, see: limit,
		},
		{
			variable: "WEBSITE_INSTANCE_ID", hosted: true, process: settings.Environment{SiteName: "site", ContainerName: "c"},
			values: map[string]any{"": consumption, "i": whole}, see: limit,
		},
	}
}

// programEffects maps a variable to a value, and to a regular expression for the log that matches only
// with this value.
var programEffects = map[string]struct{ value, logged string }{
	"PORT":                    {"18080", `address=http://127\.0\.0\.1:18080`},
	"DURABLE_ADDRESS":         {"0.0.0.0", `address=http://(0\.0\.0\.0|\[::\]):`},
	"FUNCTIONS_APP_ROOT_PATH": {"/nowhere", "appRoot=/nowhere"},
	"AzureWebJobsScriptRoot":  {"/nowhere", "appRoot=/nowhere"},
	"DURABLE_TRACE_URL":       {"nowhere", `DURABLE_TRACE_URL is .*nowhere`},
	"DURABLE_LOG_LEVEL":       {"debug", "level=DEBUG"},
	"DURABLE_LOG_FORMAT":      {"json", `"msg":"listening"`},
}
