package collective

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// A launcher starts one process for each rank, and tells it in variables which it is.
type launcher struct {
	name              string
	rank, size, local string
}

var launchers = []launcher{
	{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
	{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
	{"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
	{"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
}

// FromEnv returns the Options that the launcher of this process has set:
//
//   - torchrun, and any program that sets the same: RANK, WORLD_SIZE, LOCAL_RANK
//   - Open MPI: OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK
//   - MPICH and Intel MPI: PMI_RANK, PMI_SIZE, MPI_LOCALRANKID
//   - Slurm's srun: SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID
//
// The first of these whose variable of the rank is set counts. The address is MASTER_ADDR and MASTER_PORT. With Slurm,
// their defaults are the first machine in SLURM_STEP_NODELIST or SLURM_JOB_NODELIST, and a port from 20000 to 29999
// that follows from SLURM_JOB_ID. If torchrun's agent itself listens at MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE), the
// ranks meet at the next port. COLLECTIVE_SECRET is the secret. It must not be set to an empty value.
//
// It returns an error that matches [ErrNoLauncher] if no launcher has set a rank. Other errors name a variable and its
// value.
func FromEnv() (Options, error) { return fromEnv(os.LookupEnv) }

func fromEnv(lookup func(string) (string, bool)) (Options, error) {
	const op = "collective.FromEnv"
	e := environment{lookup: lookup}
	var o Options
	l := e.launcher()
	if l == nil {
		var names []string
		for _, l := range launchers {
			names = append(names, l.rank)
		}
		return o, refuse(op, ErrNoLauncher, "none of %s is set", strings.Join(names, ", "))
	}
	o.Rank, o.Size = e.number(l, l.rank, 0, mostRanks), e.number(l, l.size, 1, mostRanks)
	if e.err == nil && o.Rank >= o.Size {
		e.err = fmt.Errorf("%s=%d, but %s=%d", l.rank, o.Rank, l.size, o.Size)
	}
	if _, set := lookup(l.local); set {
		o.LocalRank = e.number(l, l.local, 0, mostRanks)
	}
	if o.Size > 1 {
		o.Address = net.JoinHostPort(e.host(l), strconv.Itoa(e.port(l)))
	}
	o.Secret = e.secret()
	if e.err != nil {
		return Options{}, named(op, e.err)
	}
	return o, nil
}

// An environment holds the first error.
type environment struct {
	lookup func(string) (string, bool)
	err    error
}

func (e *environment) launcher() *launcher {
	for i := range launchers {
		if _, set := e.lookup(launchers[i].rank); set {
			return &launchers[i]
		}
	}
	return nil
}

func (e *environment) fail(format string, args ...any) {
	if e.err == nil {
		e.err = fmt.Errorf(format, args...)
	}
}

// number returns a variable that must be set.
func (e *environment) number(l *launcher, name string, least, most int) int {
	text, set := e.lookup(name)
	if !set {
		e.fail("%s is not set, but %s of %s is", name, l.rank, l.name)
		return 0
	}
	return e.parse(name, text, least, most)
}

func (e *environment) parse(name, text string, least, most int) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		e.fail("%s=%q is not a number from %d to %d", name, text, least, most)
	}
	return n
}

// host returns the host of rank 0.
func (e *environment) host(l *launcher) string {
	if host, _ := e.lookup("MASTER_ADDR"); host != "" {
		_, err := netip.ParseAddr(host)
		if err != nil && strings.ContainsAny(host, ":[]/ ") {
			e.fail("MASTER_ADDR=%q is not a host: the port belongs into MASTER_PORT", host)
		}
		return host
	}
	if l.name == "Slurm" {
		for _, name := range []string{"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"} {
			list, _ := e.lookup(name)
			if list == "" {
				continue
			}
			host := firstHost(list)
			if host == "" {
				e.fail("%s=%q is not a list of hosts", name, list)
			}
			return host
		}
	}
	e.fail("MASTER_ADDR is not set: set it to the host of rank 0")
	return ""
}

// port returns the port of rank 0.
func (e *environment) port(l *launcher) int {
	const name = "MASTER_PORT"
	text, set := e.lookup(name)
	if !set && l.name == "Slurm" {
		const job = "SLURM_JOB_ID"
		if id, set := e.lookup(job); set {
			return 20000 + e.parse(job, id, 0, 1<<31-1)%10000
		}
	}
	if !set {
		e.fail("%s is not set: set it to a free port of the host of rank 0", name)
		return 0
	}
	if agent, _ := e.lookup("TORCHELASTIC_USE_AGENT_STORE"); strings.EqualFold(agent, "true") {
		return e.parse(name, text, 1, 65534) + 1
	}
	return e.parse(name, text, 1, 65535)
}

// secret returns the secret. One that is empty comes from a variable of a script that was not set.
func (e *environment) secret() string {
	const name = "COLLECTIVE_SECRET"
	secret, set := e.lookup(name)
	if set && secret == "" {
		e.fail("%s is set, but empty: set it to the secret of all ranks, or unset it", name)
	}
	return secret
}

// firstHost returns the first host of a list as Slurm writes them, such as
// "gpu[07-09,12],login", or "" if it is none.
func firstHost(list string) string {
	end := strings.IndexAny(list, "[,")
	if end < 0 {
		return list
	}
	prefix := list[:end]
	if list[end] == ',' {
		return prefix
	}
	numbers, rest, ok := strings.Cut(list[end+1:], "]")
	if !ok {
		return ""
	}
	first := numbers
	if i := strings.IndexAny(numbers, "-,"); i >= 0 {
		first = numbers[:i]
	}
	if _, err := strconv.ParseUint(first, 10, 64); err != nil {
		return ""
	}
	suffix, _, _ := strings.Cut(rest, ",")
	if strings.Contains(suffix, "[") {
		suffix = firstHost(suffix)
	}
	return prefix + first + suffix
}
