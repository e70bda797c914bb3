// The contestant that calls cudarc: peer-cudarc KERNELS.ptx [notrack]. It answers as serve.go does.
use cudarc::driver::{
    sys, CudaContext, CudaEvent, CudaFunction, CudaGraph, CudaSlice, CudaStream, LaunchConfig, PinnedHostSlice,
    PushKernelArg,
};
use cudarc::nvrtc::Ptx;
use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::sync::{Arc, Barrier};
use std::time::Instant;

fn cpu_us() -> f64 {
    unsafe {
        let mut u: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut u);
        (u.ru_utime.tv_sec + u.ru_stime.tv_sec) as f64 * 1e6 + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) as f64
    }
}
fn say(s: String) {
    println!("{s}");
    std::io::stdout().flush().unwrap();
}
const ONE: LaunchConfig = LaunchConfig {
    grid_dim: (1, 1, 1),
    block_dim: (1, 1, 1),
    shared_mem_bytes: 0,
};
const LARGEST: usize = 64 << 20;

// Peer is the contestant, and the argument of the item.
struct Peer {
    ctx: Arc<CudaContext>,
    s: Arc<CudaStream>,
    ev: CudaEvent,
    f: HashMap<&'static str, CudaFunction>,
    mem: CudaSlice<u8>,
    copies: HashMap<usize, (CudaSlice<u8>, PinnedHostSlice<u8>)>,
    graph: Option<(usize, CudaGraph)>,
    pipe: HashMap<
        usize,
        (
            Vec<Arc<CudaStream>>,
            Vec<CudaSlice<f32>>,
            Vec<PinnedHostSlice<f32>>,
            Vec<PinnedHostSlice<f32>>,
        ),
    >,
    arg: usize,
}
// e makes a text of an error.
fn e<T>(r: Result<T, cudarc::driver::DriverError>) -> Result<T, String> {
    r.map_err(|x| format!("{x:?}"))
}

impl Peer {
    fn idle(&self) -> Result<(), String> {
        e(self.ctx.synchronize())
    }
    fn launch3(&self) -> Result<(), String> {
        let mut l = self.s.launch_builder(&self.f["three"]);
        l.arg(&self.mem).arg(&1u32).arg(&2f32);
        e(unsafe { l.launch(ONE) })?;
        Ok(())
    }
    fn spin(&self, s: &CudaStream, ns: u64) -> Result<(), String> {
        spin(&self.f["spin"], s, ns)
    }
    fn capture(&self) -> Result<CudaGraph, String> {
        e(self
            .s
            .begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))?;
        for _ in 0..self.arg {
            if let Err(x) = self.launch3() {
                let _ = self.s.end_capture(sys::CUgraphInstantiate_flags(0));
                return Err(x);
            }
        }
        e(self.s.end_capture(sys::CUgraphInstantiate_flags(0)))?.ok_or("no graph".into())
    }
    fn ready(&mut self) -> Result<(), String> {
        if self.graph.as_ref().map(|g| g.0) != Some(self.arg) {
            self.graph = Some((self.arg, self.capture()?));
        }
        Ok(())
    }
    // op does an item n times, and returns how many ns that took.
    fn op(&mut self, name: &str, n: usize) -> Result<f64, String> {
        macro_rules! plain {
            ($b:expr) => {{
                self.idle()?;
                let t = Instant::now();
                for _ in 0..n {
                    $b;
                }
                Ok(t.elapsed().as_nanos() as f64)
            }};
        }
        macro_rules! batched {
            ($batch:expr, $b:expr) => {{
                let mut left = n;
                let mut total = 0f64;
                while left > 0 {
                    let k = left.min($batch);
                    self.idle()?;
                    let t = Instant::now();
                    for _ in 0..k {
                        $b;
                    }
                    total += t.elapsed().as_nanos() as f64;
                    left -= k;
                }
                self.idle()?;
                Ok(total)
            }};
        }
        match name {
            "event_record" => batched!(200, e(self.ev.record(&self.s))?),
            "event_query" => plain!(if !e(self.ev.try_is_complete())? {
                return Err("not done".into());
            }),
            "launch_0" => batched!(
                200,
                e(unsafe { self.s.launch_builder(&self.f["nothing"]).launch(ONE) })?
            ),
            "launch_3" => batched!(200, self.launch3()?),
            "launch_16" => {
                let v: [u64; 16] = std::array::from_fn(|i| i as u64);
                batched!(200, {
                    let mut l = self.s.launch_builder(&self.f["sixteen"]);
                    for x in &v {
                        l.arg(x);
                    }
                    e(unsafe { l.launch(ONE) })?;
                })
            }
            "launch_100" => batched!(2, {
                for _ in 0..100 {
                    self.launch3()?;
                }
            }),
            "stream_create" => plain!({
                e(self.ctx.new_stream())?;
            }),
            "async_alloc" => batched!(200, {
                e(unsafe { self.s.alloc::<u8>(4096) })?;
            }),
            "buf_alloc" => {
                let a = self.arg;
                batched!(200, {
                    e(unsafe { self.s.alloc::<u8>(a) })?;
                })
            }
            "h2d" | "d2h" => {
                let a = self.arg;
                if !self.copies.contains_key(&a) {
                    let d = e(unsafe { self.s.alloc::<u8>(a) })?;
                    let h = e(unsafe { self.ctx.alloc_pinned_with_flags::<u8>(a, 0) })?;
                    self.copies.insert(a, (d, h));
                }
                self.idle()?;
                let s = self.s.clone();
                let (d, h) = self.copies.get_mut(&a).unwrap();
                let t = Instant::now();
                for _ in 0..n {
                    if name == "h2d" {
                        e(s.memcpy_htod(h, d))?
                    } else {
                        e(s.memcpy_dtoh(d, h))?
                    }
                    e(s.synchronize())?;
                }
                Ok(t.elapsed().as_nanos() as f64)
            }
            "graph_capture" => plain!({
                self.capture()?;
            }),
            "graph_launch" => {
                self.ready()?;
                let b = (200 / self.arg).max(4);
                batched!(b, e(self.graph.as_ref().unwrap().1.launch())?)
            }
            "graph_wait" => {
                self.ready()?;
                plain!({
                    e(self.graph.as_ref().unwrap().1.launch())?;
                    e(self.s.synchronize())?;
                })
            }
            "pipe_1m" => self.pipe(n, 256, 1 << 20),
            "pipe_16k" => self.pipe(n, 2048, 16 << 10),
            _ => Err("none".into()),
        }
    }
    fn pipe(&mut self, n: usize, chunks: usize, size: usize) -> Result<f64, String> {
        if !self.pipe.contains_key(&size) {
            let (mut ss, mut ds, mut hi, mut ho) = (vec![], vec![], vec![], vec![]);
            for _ in 0..8 {
                let s = e(self.ctx.new_stream())?;
                ds.push(e(unsafe { s.alloc::<f32>(size / 4) })?);
                ss.push(s);
            }
            for _ in 0..32 {
                let mut h = e(unsafe { self.ctx.alloc_pinned_with_flags::<f32>(size / 4, 0) })?;
                e(h.as_mut_slice())?.fill(1.0);
                hi.push(h);
                ho.push(e(unsafe { self.ctx.alloc_pinned_with_flags::<f32>(size / 4, 0) })?);
            }
            self.pipe.insert(size, (ss, ds, hi, ho));
        }
        self.idle()?;
        let k = self.f["mulby"].clone();
        let (ss, ds, hi, ho) = self.pipe.get_mut(&size).unwrap();
        let cnt = (size / 4) as u32;
        let cfg = LaunchConfig {
            grid_dim: ((cnt + 255) / 256, 1, 1),
            block_dim: (256, 1, 1),
            shared_mem_bytes: 0,
        };
        let t = Instant::now();
        for _ in 0..n {
            for c in 0..chunks {
                let (q, o) = (c & 7, c % 32);
                e(ss[q].memcpy_htod(&hi[o], &mut ds[q]))?;
                let mut l = ss[q].launch_builder(&k);
                l.arg(&mut ds[q]).arg(&cnt).arg(&2f32);
                e(unsafe { l.launch(cfg) })?;
                e(ss[q].memcpy_dtoh(&ds[q], &mut ho[o]))?;
            }
            for s in ss.iter() {
                e(s.synchronize())?;
            }
        }
        let t = t.elapsed().as_nanos() as f64;
        if e(ho[31].as_slice())?[size / 4 - 1] != 2.0 {
            return Err("wrong result".into());
        }
        Ok(t)
    }
    fn wait(&self) -> Result<String, String> {
        let us = self.arg;
        let n = if us >= 2000 {
            40
        } else if us >= 200 {
            150
        } else {
            800
        };
        self.idle()?;
        for _ in 0..3 {
            self.spin(&self.s, us as u64 * 1000)?;
            e(self.s.synchronize())?;
        }
        let c = cpu_us();
        let mut v = Vec::with_capacity(n);
        for _ in 0..n {
            let t = Instant::now();
            if us == 0 {
                e(unsafe { self.s.launch_builder(&self.f["nothing"]).launch(ONE) })?;
            } else {
                self.spin(&self.s, us as u64 * 1000)?;
            }
            e(self.s.synchronize())?;
            v.push(t.elapsed().as_nanos() as f64 / 1e3);
        }
        let c = cpu_us() - c;
        Ok(format!("{{\"s\": {v:?}, \"cpu\": {}}}", c / n as f64))
    }
    fn many(&self, reps: usize) -> Result<String, String> {
        let w = self.arg;
        let mut ss = vec![];
        for _ in 0..w {
            let s = e(self.ctx.new_stream())?;
            self.spin(&s, 1000)?;
            ss.push(s);
        }
        self.idle()?;
        let (go, end) = (Arc::new(Barrier::new(w + 1)), Arc::new(Barrier::new(w + 1)));
        let mut th = vec![];
        for s in &ss {
            let (s, f, go, end) = (s.clone(), self.f["spin"].clone(), go.clone(), end.clone());
            th.push(
                std::thread::Builder::new()
                    .stack_size(256 << 10)
                    .spawn(move || {
                        go.wait();
                        for _ in 0..reps {
                            spin(&f, &s, 500_000).unwrap();
                            s.synchronize().unwrap();
                        }
                        end.wait();
                    })
                    .map_err(|x| x.to_string())?,
            );
        }
        let c = cpu_us();
        go.wait();
        let t = Instant::now();
        end.wait();
        let (t, c) = (t.elapsed(), cpu_us() - c);
        for h in th {
            let _ = h.join();
        }
        Ok(format!(
            "{{\"wall\": {}, \"cpu\": {}}}",
            t.as_micros() as f64 / 1e3,
            c / 1e3
        ))
    }
}
fn spin(f: &CudaFunction, s: &CudaStream, ns: u64) -> Result<(), String> {
    let mut l = s.launch_builder(f);
    l.arg(&ns);
    e(unsafe { l.launch(ONE) })?;
    Ok(())
}

fn run() -> Result<(), String> {
    let track = std::env::args().nth(2).as_deref() != Some("notrack");
    let kernels = std::env::args()
        .nth(1)
        .ok_or("usage: peer-cudarc KERNELS.ptx [notrack]")?;
    let kernels = std::fs::read_to_string(&kernels).map_err(|x| format!("{kernels}: {x}"))?;
    let ctx = e(CudaContext::new(0))?;
    if !track {
        unsafe { ctx.disable_event_tracking() };
    }
    let s = e(ctx.new_stream())?;
    let ev = e(ctx.new_event(None))?;
    e(ev.record(&s))?;
    let m = e(ctx.load_module(Ptx::from_src(kernels)))?;
    let mut f = HashMap::new();
    for n in ["nothing", "three", "sixteen", "spin", "mulby"] {
        f.insert(n, e(m.load_function(n))?);
    }
    let mem = e(unsafe { s.alloc::<u8>(LARGEST) })?;
    unsafe {
        let mut pool = std::ptr::null_mut();
        let mut all = u64::MAX;
        e(sys::cuDeviceGetDefaultMemPool(&mut pool, ctx.cu_device()).result())?;
        e(sys::cuMemPoolSetAttribute(
            pool,
            sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
            &mut all as *mut u64 as *mut _,
        )
        .result())?;
    }
    let mut b = Peer {
        ctx,
        s,
        ev,
        f,
        mem,
        copies: HashMap::new(),
        graph: None,
        pipe: HashMap::new(),
        arg: 0,
    };
    say(format!(
        "{{\"ready\": \"cudarc 0.19.10{}\"}}",
        if track { "" } else { " without event tracking" }
    ));
    let mut cal: HashMap<(String, usize), usize> = HashMap::new();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|x| x.to_string())?;
        let p: Vec<&str> = line.split_whitespace().collect();
        if p.is_empty() {
            continue;
        }
        b.arg = p.get(1).and_then(|x| x.parse().ok()).unwrap_or(0);
        let ms: f64 = p.get(2).and_then(|x| x.parse().ok()).unwrap_or(20.0);
        let name = p[0];
        let r = match name {
            "wait" => b.wait(),
            "many" => b.many(ms as usize),
            _ => (|| {
                let key = (name.to_string(), b.arg);
                let n = match cal.get(&key) {
                    Some(n) => *n,
                    None => {
                        b.op(name, 1)?;
                        let mut n = 1usize;
                        loop {
                            let t = b.op(name, n)?;
                            if t >= ms * 1e6 / 4.0 || n >= 1 << 22 {
                                n = ((n as f64 * ms * 1e6 / t) as usize).max(1);
                                break;
                            }
                            n *= 2;
                        }
                        cal.insert(key, n);
                        n
                    }
                };
                b.op(name, n / 8 + 1)?;
                Ok(format!("{{\"ns\": {}}}", b.op(name, n)? / n as f64))
            })(),
        };
        say(r.unwrap_or_else(|x| format!("{{\"na\": {x:?}}}")));
    }
    Ok(())
}
fn main() {
    if let Err(x) = run() {
        say(format!("{{\"na\": {x:?}}}"));
        std::process::exit(1);
    }
}
