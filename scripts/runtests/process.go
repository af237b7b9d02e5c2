package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// stopGrace is the time in which a process can print its goroutines before it is killed.
const stopGrace = 20 * time.Second

// runPart runs a build or a test binary to its end.
func runPart(ctx context.Context, r *run, p part) result {
	res := result{part: p}
	started := time.Now()
	if p.build != nil {
		var shown bytes.Buffer
		cmd := exec.CommandContext(ctx, p.build[0], p.build[1:]...)
		cmd.Env = append(os.Environ(), p.env...)
		cmd.Stdout, cmd.Stderr = &shown, &shown
		res.err = cmd.Run()
		res.shown = shown.String()
		if cmd.ProcessState != nil {
			res.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		}
	} else {
		for i := range max(1, p.processes) {
			found, cpu, err := runTests(ctx, r, p, r.times.limit(p))
			if err == nil && p.repeated != "" && !found.passes[p.repeated] {
				err = fmt.Errorf("the test was skipped or does not exist: %v", slices.Collect(maps.Keys(found.skipped)))
			}
			if i > 0 && found != nil {
				found.passed += res.tests.passed
			}
			res.tests, res.cpu, res.err = found, res.cpu+cpu, err
			if err != nil {
				break
			}
		}
	}
	res.wall = time.Since(started)
	return res
}

// hardLimit is the maximum duration of a part, as a multiple of its limit.
const hardLimit = 6

// runTests runs a test binary and collects the events of its tests. If no test starts or ends for the
// duration of limit, the binary prints its goroutines after SIGQUIT and is killed. A slow machine delays
// all tests, so the limit does not apply to the sum of their times.
func runTests(ctx context.Context, r *run, p part, limit time.Duration) (*tests, time.Duration, error) {
	binary, err := filepath.Abs(p.binary)
	if err != nil {
		return nil, 0, err
	}
	flags := append([]string{"-test.v=test2json", "-test.paniconexit0", "-test.timeout=" + (hardLimit * limit).String(), "-test.shuffle=" + strconv.FormatUint(r.shuffle, 10)}, p.flags...)
	cmd := exec.Command(binary, flags...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), p.env...)
	inOwnGroup(cmd)
	events := exec.Command(r.test2json, "-t", "-p", p.dir)
	inOwnGroup(events) // an interrupt must not end it before the binary's last output
	read, write, err := os.Pipe()
	if err != nil {
		return nil, 0, err
	}
	defer read.Close()
	cmd.Stdout, cmd.Stderr, events.Stdin = write, write, read
	stream, err := events.StdoutPipe()
	if err != nil {
		return nil, 0, err
	}
	if err := events.Start(); err != nil {
		return nil, 0, err
	}
	err = cmd.Start()
	write.Close()
	if err != nil {
		return nil, 0, errors.Join(err, events.Wait())
	}
	collected, progress := make(chan *tests, 1), make(chan struct{}, 1)
	go func() {
		collected <- collect(stream, func() {
			select {
			case progress <- struct{}{}:
			default: // the previous one is not read yet
			}
		})
	}()
	ended, stuck := make(chan struct{}), make(chan struct{})
	go func() {
		for quiet := time.NewTimer(limit); ; quiet.Reset(limit) {
			select {
			case <-progress:
				continue
			case <-ended:
				return
			case <-quiet.C:
				close(stuck)
			case <-ctx.Done():
			}
			break
		}
		quit(cmd)
		select {
		case <-ended:
		case <-time.After(stopGrace):
			kill(cmd)
		}
	}()
	waitErr := cmd.Wait()
	close(ended)
	kill(cmd) // processes that the tests have left keep the pipe open
	found := <-collected
	err = errors.Join(ctx.Err(), waitErr, events.Wait())
	select {
	case <-stuck:
		err = errors.Join(err, fmt.Errorf("no test started or ended for %v, which is five times the measured time of the part, or the minimum", limit))
	default:
	}
	if err == nil && found.ran == 0 {
		err = fmt.Errorf("no test ran")
	}
	return found, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), err
}
