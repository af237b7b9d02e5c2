package memlimit

import (
	"testing"
	"testing/fstest"
)

func TestForGo_IsNinetyPercentOfTheSmallestLimitOfTheContainer(t *testing.T) {
	t.Parallel()
	const v2, v1 = "sys/fs/cgroup", "sys/fs/cgroup/memory"
	for name, tt := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"no control groups":           {nil, 0},
		"version 2 without a limit":   {map[string]string{"proc/self/cgroup": "0::/\n", v2 + "/memory.max": "max\n"}, 0},
		"version 2":                   {map[string]string{"proc/self/cgroup": "0::/\n", v2 + "/memory.max": "1000000\n"}, 900_000},
		"a group above":               {map[string]string{"proc/self/cgroup": "0::/a/b\n", v2 + "/a/b/memory.max": "max\n", v2 + "/a/memory.max": "1000\n"}, 900},
		"the least counts":            {map[string]string{"proc/self/cgroup": "0::/a/b\n", v2 + "/a/b/memory.max": "500\n", v2 + "/a/memory.max": "1000\n"}, 450},
		"a group that is not visible": {map[string]string{"proc/self/cgroup": "0::/system/docker\n", v2 + "/memory.max": "1000\n"}, 900},
		"version 1": {map[string]string{
			"proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/x\n", v1 + "/x/memory.limit_in_bytes": "2000\n", v1 + "/memory.limit_in_bytes": "9223372036854771712\n",
		}, 1800},
		"version 1 without a limit": {map[string]string{"proc/self/cgroup": "4:memory:/\n", v1 + "/memory.limit_in_bytes": "9223372036854771712\n"}, 0},
		"version 1 beside an empty version 2": {map[string]string{
			"proc/self/cgroup": "4:memory:/x\n0::/x\n", v1 + "/x/memory.limit_in_bytes": "2000\n",
		}, 1800},
		"damaged": {map[string]string{"proc/self/cgroup": "0::/\n0:\n", v2 + "/memory.max": "many\n"}, 0},
	} {
		root := fstest.MapFS{}
		for file, text := range tt.files {
			root[file] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := ForGo(root); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}
