//go:build unix

package soak_test

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
)

// sky decides the fate of each request to the storage account.
type sky struct {
	fates []func(wait time.Duration) azuritetest.Handling // of single requests

	mu       sync.Mutex // guards the fields below
	random   *rand.Rand
	calm     bool
	slow     map[string]spell // by service
	throttle map[string]spell
	late     int // requests that waited
}

// spell is a lasting fault of a service.
type spell struct {
	until   time.Time
	latency time.Duration
}

// single are the faults of single requests.
var single = map[string]func(wait time.Duration) azuritetest.Handling{
	"drop":  func(time.Duration) azuritetest.Handling { return azuritetest.Handling{Fault: azuritetest.Drop} },
	"lose":  func(time.Duration) azuritetest.Handling { return azuritetest.Handling{Fault: azuritetest.DropResponse} },
	"cut":   func(time.Duration) azuritetest.Handling { return azuritetest.Handling{Fault: azuritetest.Cut} },
	"twice": func(time.Duration) azuritetest.Handling { return azuritetest.Handling{Fault: azuritetest.Twice} },
	"late":  func(wait time.Duration) azuritetest.Handling { return azuritetest.Handling{DeliveryDelay: wait} },
	"hold":  func(wait time.Duration) azuritetest.Handling { return azuritetest.Handling{ResponseDelay: wait} },
	"abandon": func(wait time.Duration) azuritetest.Handling {
		return azuritetest.Handling{Fault: azuritetest.Abandon, ResponseDelay: wait / 100}
	},
}

// Each request in faultEvery has a fault, and waits for up to longestWait if the fault is a wait.
const (
	faultEvery  = 15
	longestWait = 3 * time.Second
)

func newSky(seed uint64, faults []string) *sky {
	s := &sky{random: rand.New(rand.NewPCG(seed, 1)), slow: map[string]spell{}, throttle: map[string]spell{}}
	for _, name := range faults {
		if fate, ok := single[name]; ok {
			s.fates = append(s.fates, fate)
		}
	}
	return s
}

// fate is an [azuritetest.Plan].
func (s *sky) fate(call azuritetest.Call) (fate azuritetest.Handling) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	switch {
	case s.calm:
		return fate
	case now.Before(s.throttle[call.Service].until) && s.random.IntN(4) > 0:
		return azuritetest.Handling{Fault: azuritetest.Refuse}
	case len(s.fates) > 0 && s.random.IntN(faultEvery) == 0:
		fate = s.fates[s.random.IntN(len(s.fates))](time.Duration(s.random.Int64N(int64(longestWait))))
	}
	if slow := s.slow[call.Service]; now.Before(slow.until) {
		fate.DeliveryDelay += slow.latency
	}
	if fate.DeliveryDelay > 0 || fate.ResponseDelay > 0 {
		s.late++
	}
	return fate
}

// cast starts a spell of a service.
func (s *sky) cast(kind, service string, lasts, latency time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	spells := s.slow
	if kind == "throttle" {
		spells = s.throttle
	}
	spells[service] = spell{time.Now().Add(lasts), latency}
}

// clear ends all faults.
func (s *sky) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calm = true
}

func (s *sky) waited() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.late
}
