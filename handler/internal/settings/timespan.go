package settings

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// timeSpan matches the forms of .NET's TimeSpan in host.json: hh:mm and hh:mm:ss, with optional days
// ("1.00:00:00") and an optional fraction of up to seven digits. It rejects other forms that
// TimeSpan.Parse accepts, such as a plain number, which means days.
var timeSpan = regexp.MustCompile(`^(?:(\d{1,8})\.)?(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,7}))?)?$`)

var errTimeSpan = errors.New("not a time span of the form hh:mm:ss or d.hh:mm:ss")

// ParseTimeSpan parses a .NET TimeSpan. It rejects negative time spans, because no setting allows them.
func ParseTimeSpan(s string) (time.Duration, error) {
	m := timeSpan.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return 0, errTimeSpan
	}
	days, hours, minutes, seconds := number(m[1]), number(m[2]), number(m[3]), number(m[4])
	if hours > 23 || minutes > 59 || seconds > 59 {
		return 0, errTimeSpan
	}
	if days > math.MaxInt64/int64(24*time.Hour)-1 {
		return 0, errTimeSpan
	}
	ticks := number((m[5] + "0000000")[:7]) // units of 100 ns
	return time.Duration(days)*24*time.Hour + time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute +
		time.Duration(seconds)*time.Second + time.Duration(ticks)*100, nil
}

// number returns the value of a few decimal digits, 0 for "".
func number(digits string) int64 {
	n, _ := strconv.ParseInt(digits, 10, 64)
	return n
}

// FormatTimeSpan formats d in the form that [ParseTimeSpan] reads. d must not be negative.
func FormatTimeSpan(d time.Duration) string {
	days, rest := d/(24*time.Hour), d%(24*time.Hour)
	s := fmt.Sprintf("%02d:%02d:%02d", rest/time.Hour, rest%time.Hour/time.Minute, rest%time.Minute/time.Second)
	if days > 0 {
		s = fmt.Sprintf("%d.%s", days, s)
	}
	if ticks := rest % time.Second / 100; ticks > 0 {
		s += fmt.Sprintf(".%07d", ticks)
	}
	return s
}
