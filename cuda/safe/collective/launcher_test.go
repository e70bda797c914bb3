package collective

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFromEnv(t *testing.T) {
	for _, c := range []struct {
		name, set string
		want      Options
		says      string
	}{
		{name: "torchrun", set: "RANK=1 WORLD_SIZE=4 LOCAL_RANK=1 MASTER_ADDR=a MASTER_PORT=29500",
			want: Options{Rank: 1, Size: 4, LocalRank: 1, Address: "a:29500"}},
		{name: "torchrun with its agent at the port", set: "RANK=1 WORLD_SIZE=4 LOCAL_RANK=1 MASTER_ADDR=a MASTER_PORT=29500 TORCHELASTIC_USE_AGENT_STORE=True",
			want: Options{Rank: 1, Size: 4, LocalRank: 1, Address: "a:29501"}},
		{name: "an address of IPv6, and a secret", set: "RANK=0 WORLD_SIZE=2 MASTER_ADDR=fe80::1 MASTER_PORT=1 COLLECTIVE_SECRET=s",
			want: Options{Size: 2, Address: "[fe80::1]:1", Secret: "s"}},
		{name: "the last port", set: "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=65535", want: Options{Size: 2, Address: "a:65535"}},
		{name: "one rank alone", set: "RANK=0 WORLD_SIZE=1", want: Options{Size: 1}},
		{name: "Open MPI", set: "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_LOCAL_RANK=0 MASTER_ADDR=a MASTER_PORT=5",
			want: Options{Rank: 2, Size: 3, Address: "a:5"}},
		{name: "MPICH", set: "PMI_RANK=2 PMI_SIZE=3 MPI_LOCALRANKID=2 MASTER_ADDR=a MASTER_PORT=5",
			want: Options{Rank: 2, Size: 3, LocalRank: 2, Address: "a:5"}},
		{name: "Slurm", set: "SLURM_PROCID=5 SLURM_NTASKS=8 SLURM_LOCALID=1 SLURM_JOB_NODELIST=gpu[07-09,12],b SLURM_JOB_ID=1234567",
			want: Options{Rank: 5, Size: 8, LocalRank: 1, Address: "gpu07:24567"}},
		{name: "Slurm with an address", set: "SLURM_PROCID=5 SLURM_NTASKS=8 SLURM_LOCALID=1 SLURM_STEP_NODELIST=a,b MASTER_PORT=7",
			want: Options{Rank: 5, Size: 8, LocalRank: 1, Address: "a:7"}},
		{name: "torchrun below Slurm", set: "RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=5 SLURM_PROCID=0 SLURM_NTASKS=1",
			want: Options{Rank: 1, Size: 2, Address: "a:5"}},

		{name: "nothing", says: "no launcher has started this process: none of RANK, OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID is set"},
		{name: "no size", set: "RANK=1", says: "WORLD_SIZE is not set, but RANK of torchrun is"},
		{name: "no number", set: "RANK=one WORLD_SIZE=2", says: `RANK="one" is not a number from 0`},
		{name: "negative", set: "RANK=-1 WORLD_SIZE=2", says: `RANK="-1" is not a number from 0`},
		{name: "too large", set: "RANK=0 WORLD_SIZE=2000000", says: `WORLD_SIZE="2000000" is not a number from 1 to 1048576`},
		{name: "a rank too many", set: "RANK=2 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=5", says: "RANK=2, but WORLD_SIZE=2"},
		{name: "a local rank", set: "RANK=1 WORLD_SIZE=2 LOCAL_RANK=x MASTER_ADDR=a MASTER_PORT=5", says: `LOCAL_RANK="x" is not a number`},
		{name: "no address", set: "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=3 MASTER_PORT=5", says: "MASTER_ADDR is not set: set it to the host of rank 0"},
		{name: "no port", set: "RANK=0 WORLD_SIZE=3 MASTER_ADDR=a", says: "MASTER_PORT is not set: set it to a free port"},
		{name: "port", set: "RANK=0 WORLD_SIZE=3 MASTER_ADDR=a MASTER_PORT=65536", says: `MASTER_PORT="65536" is not a number from 1 to 65535`},
		{name: "port 0", set: "RANK=0 WORLD_SIZE=3 MASTER_ADDR=a MASTER_PORT=0", says: `MASTER_PORT="0" is not a number from 1 to 65535`},
		{name: "a negative port", set: "RANK=0 WORLD_SIZE=3 MASTER_ADDR=a MASTER_PORT=-1", says: `MASTER_PORT="-1" is not a number from 1 to 65535`},
		{name: "no port after that of the agent", set: "RANK=0 WORLD_SIZE=3 MASTER_ADDR=a MASTER_PORT=65535 TORCHELASTIC_USE_AGENT_STORE=True", says: `MASTER_PORT="65535" is not a number from 1 to 65534`},
		{name: "an address with a port", set: "RANK=0 WORLD_SIZE=3 MASTER_ADDR=a:5 MASTER_PORT=5", says: `MASTER_ADDR="a:5" is not a host: the port belongs into MASTER_PORT`},
		{name: "an address in brackets", set: "RANK=0 WORLD_SIZE=3 MASTER_ADDR=[::1] MASTER_PORT=5", says: `MASTER_ADDR="[::1]" is not a host`},
		{name: "an empty secret", set: "RANK=0 WORLD_SIZE=3 MASTER_ADDR=a MASTER_PORT=5 COLLECTIVE_SECRET=", says: "COLLECTIVE_SECRET is set, but empty: set it to the secret of all ranks, or unset it"},
		{name: "an empty secret of one rank", set: "RANK=0 WORLD_SIZE=1 COLLECTIVE_SECRET=", says: "COLLECTIVE_SECRET is set, but empty"},
		{name: "a list without end", set: "SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_JOB_NODELIST=gpu[1 SLURM_JOB_ID=5", says: `SLURM_JOB_NODELIST="gpu[1" is not a list of hosts`},
		{name: "a job", set: "SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_JOB_NODELIST=a SLURM_JOB_ID=x", says: `SLURM_JOB_ID="x" is not a number`},
	} {
		t.Run(c.name, func(t *testing.T) {
			set := map[string]string{}
			for _, s := range strings.Fields(c.set) {
				name, value, _ := strings.Cut(s, "=")
				set[name] = value
			}
			got, err := fromEnv(func(name string) (string, bool) { v, ok := set[name]; return v, ok })
			assert.Equal(t, c.want, got)
			if c.says == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, c.says)
		})
	}
}

func TestFromEnvWithoutLauncher(t *testing.T) {
	_, err := fromEnv(func(string) (string, bool) { return "", false })
	assert.ErrorIs(t, err, ErrNoLauncher)
}

func FuzzFirstHost(f *testing.F) {
	for _, s := range []string{"a", "a,b", "gpu[07-09,12],login", "r[1-2]n[3-4]", "x[", "[1]", "a[1-2]-ib"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		if host := firstHost(list); strings.ContainsAny(host, ",") {
			t.Errorf("%q of %q", host, list)
		}
	})
}

func TestFirstHost(t *testing.T) {
	for list, want := range map[string]string{
		"a": "a", "a,b": "a", "gpu[07-09,12],login": "gpu07", "r[1-2]n[3-4]": "r1n3", "a[1,2]-ib,c": "a1-ib", "x[": "", "x[a-b]": "", "": "",
	} {
		assert.Equal(t, want, firstHost(list), list)
	}
}
