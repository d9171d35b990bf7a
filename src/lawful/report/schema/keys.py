"""The JSON of every verb, key by key: this table is the interface, and `schema.py` makes its JSON Schema.

A line is `key: type, meaning`; `?` after a key says that it is not always there, `?` after a type that it may be null.
Keys are only ever added within a version. New keys may appear before they stand here; those that stand here stay.
"""

from __future__ import annotations

VERSION = 1
COMMON = """
schema: string, the verb and the version of this table
reading?: object, how the network was read: format, layers, assumed, ignored
readings?: array of object, the same of each network, where a verb takes several
evidence?: string, how the answer is re-checked, or why it is not
"""
ERROR = """
error: string, what went wrong, in one line
hint: string, what to do
exit: integer, the exit code
"""
TABLE = {
    "audit": """
        network: string, as it was named
        summary: object, name and sizes
        laws: array of object, counts of laws by level, each with its status
        balance?: object, the balance of every hidden neuron
        where: object, whether the invariant set is connected, and the locked weights
        waste?: object, dead, linear, removable and needed neurons, with the bound of removing, and what is undecided
        same_function?: object?, identifiability or the kinds of neurons
        data?: array of object?, what each layer does to the data given
        skipped: array of object, what was left out, why, and how to ask for it
        recommendations: array of object, what to do, the command, and the measured benefit
        spaces?: array of object, of a module: each group of symmetries with its size, laws and parameters
        dead?: object, entries that no loss sees
        pinned?: array of object, operations that were not understood
        dimension?: integer, of the continuous group
        log10_discrete?: number, of the number of permutations
        mode?: string, train or eval
        removable_channels?: integer?, of a module: how many channels pruning removes
        rank?: integer?, of J""",
    "explore": """
        page: string, the file that was written
        parameters: integer, of the network on the page""",
    "show": """
        name: string, what the network is
        parameters: integer, how many weights and biases
        inputs?: integer, how many
        outputs?: integer, how many
        hidden?: integer, how many neurons
        biases?: integer, how many of the parameters
        layers?: array of object, role, width, activation and parameters
        in_bottlenecks?: array of string, neurons with one incoming edge
        out_bottlenecks?: array of string, neurons with one outgoing edge
        dead?: array of string?, neurons that are 0 for every input
        linear?: array of string?, neurons that never bend
        undecided?: array of string?, neurons that may be dead or never bend: not decided
        balance?: object?, smallest, median and largest
        program?: array of string, with --program the lines of the program
        digest?: string, of the program without its names: equal for all spellings of it
        operators?: object, how many nodes each operator of the table has
        opaque?: array of string, calls that are not in the table
        notes?: object, what was assumed while reading, and how often
        tensors?: integer, of a source of which no graph is known
        reason?: string, why there is no graph""",
    "laws": """
        laws: integer, how many independent quantities training conserves
        parameters: integer, how many weights and biases train
        states: integer, dimension of the state space (with momentum also velocities and time)
        dimensions: array of integer, of V_0, V_1, ... until it stagnates
        status: string, proved, numerical, at least or undecided
        known: integer, independent explicit laws
        arithmetic: string, exact, balls, float64 or theorem
        gap: number?, the smallest gap of singular values, in floating point
        level: string, phi (any weights), near (these weights) or data
        flow: string, the training dynamics
        loss: string, the family of losses
        reason: string, why nothing is proved
        mode: string?, train or eval, for modules with normalisation
        error: number?, probability that the count is too large
        theorem: string?, where a theorem replaces arithmetic
        claim: string, what is complete: phi, near or somewhere
        near: object?, counts near random weights, where that is another question
        explicit?: array of object, all explicit laws (--all)
        polynomial?: object, laws up to a degree (--degree)
        reduction?: object, whether z moves by itself (--reduction)""",
    "symmetries": """
        spaces: array of object, each group with its size, laws and parameters
        laws: integer, conserved because of these symmetries
        dead: object, entries that no loss sees
        dimension: integer, of the continuous group
        log10_discrete: number, of the number of permutations
        pinned: array of object, operations that were not understood
        mode: string, train or eval
        parameters: integer, of the module
        checked: object?, at how many points the generators were checked, and how well""",
    "components": """
        connected: boolean?, whether the invariant set is connected
        log2_components: integer, the number of locked weights
        locked: array of object, each with its sign, the minimum of its square, barrier (the root) and the proof
        free_bottlenecks: array of array, only edges of a neuron that can be zero
        marginal: array of array, left open by the tolerance given
        balance: object, of every hidden neuron
        tolerance: number, of the balance
        exact: boolean, whether it was decided without a tolerance
        outputs: array of object, what the locks mean for each output""",
    "path": """
        connected: boolean?, whether training could take a path from one to the other
        reason: string?, why not
        locked: array of array, the edges whose signs forbid it
        balance_differs: array of string, neurons whose balances differ
        pieces?: integer, of the path
        points?: integer, at which it was checked
        max_residual?: number, of the balance there, in float64
        drift?: number, of the balance between the two ends""",
    "singular": """
        rank: integer, of J
        hidden: integer, neurons
        singular: boolean, whether the rank is smaller
        tolerance: number, weights up to this size count as zero
        cut_off: array of string, neurons on no path from input to output
        groups: array of array, neurons that are cut off together
        rank_by_singular_values: integer?, in floating point
        singular_values: array of number?, of J
        null: integer?, singular values below 0.001
        gap: array of number?, around the rank
        scores: array of number, product of the norms of what each neuron or channel reads and writes
        beyond: array of string, why more than the balances may confine the training of a module
        exist?: object, whether there are singular points at all (--exist)""",
    "same": """
        verdict: string, equal, different or undecided
        within: object?, what equal means: exactly, weights or outputs
        method: string, how it was decided
        reason: string?, why it is different or undecided
        domain: string?, where it was asked
        witness: object?, steps that lead both networks to one place
        counterexample: object?, an input with both outputs, also as fractions
        certified: boolean, whether `lawful verify` can re-check it
        tolerance: number?, relative rounding of weights that is excused
        seconds: number, spent""",
    "distance": """
        status: string, proved, violated, undecided or bounded
        lower: number, on the largest difference, attained at `input`
        upper: number?, proved
        input: array of number, where the lower bound is attained
        exact_lower: string, the lower bound as a fraction
        per_output: array of object, bounds of each output
        boxes: integer, looked at
        within: number?, the question
        norm: any, inf, 1 or 2
        arithmetic: string, what was exact and what was rounded outwards
        interrupted: boolean, by Ctrl-C
        stalled: boolean, whether it stopped early since neither bound moved any more
        seconds: number, spent
        understood: string?, how a VNN-LIB file was read""",
    "vnncomp": """
        instances: integer, in the file
        sat: integer, violated
        unsat: integer, proved
        timeout: integer, undecided
        error: integer, could not be read, or the checker refused the certificate
        open: integer, not run
        certified: integer, answers that the verifier re-checked
        seconds: number, of processor time to find the answers
        recheck_seconds: number, of processor time to re-check them
        results: array of object, one for each instance""",
    "check": """
        status: string, holds, violated or undecided
        input: array of number?, that violates it
        outputs: array?, there
        other_input?: array of number?, with --monotone: a larger one, and an output goes the wrong way between the two
        other_outputs?: array?, there
        violated_output?: integer?, which goes the wrong way
        monotone?: string, the directions that were asked for
        asked_outputs?: array of integer, the outputs that were asked for
        boxes: integer, looked at
        why?: string?, nothing was decided, or nothing had to be
        walked?: integer, boxes whose regions were walked through in rationals
        arithmetic: string, what was exact and what was rounded outwards
        interrupted: boolean, by Ctrl-C
        seconds: number, spent""",
    "diff": """
        verdict: string, whether the functions are equal, different or undecided
        drift?: object, how far each neuron's balance moved
        relative_drift?: number, of all balances together
        decay?: number, the common factor of all balances
        decay_residual?: number, what that factor leaves unexplained
        flipped?: array of array, edges whose weight changed sign
        crossed?: array of array, those of them that gradient flow could not flip
        died?: array of string, neurons that intervals show dead in B alone
        revived?: array of string, neurons that intervals show dead in A alone
        losses?: array of number?, before and after, on the data given
        step?: number?, the smallest step of gradient descent that explains the drift
        dimensions?: array of object, effective dimensions by layer, before and after
        relation: string, copy, copy of weights, child, relative, sibling, stranger (no relation found) or undecided
        relation_word?: string, the same in the words that are printed
        reason: string, what the relation rests on
        settings?: array of string, settings of two folders that differ while their weights are a copy
        p_value?: number?, at most, of so many hidden units in place for networks trained apart
        effect?: number?, the share of hidden units in place
        alike?: boolean?, whether a symmetry brings the weights of B near those of A, whatever the reason is
        lineage?: object?, the tests: found, level, places, held_out (cosine, bulk, deviation), shared tensors, apart
        share?: number?, of units that two independent matchings agree on; decides nothing
        null?: number?, the same for mismatched layers
        agreements?: array of object, the same by space
        changes?: array of object, tensors that changed, by how much and how
        held?: array of array?, how much of A's matrices B holds and A of B's: first decile, median, last decile
        depth_cut?: object?, the blocks of A that B has, where some are gone, repeated or in another order
        spaces_apart?: array of object, hidden spaces of other sizes, of different architectures
        sizes_apart?: array of object, tensors of other sizes
        only?: array of array, tensors that only A or only B has
        tensors?: array of object, distances after alignment""",
    "identifiable": """
        identifiable: boolean?, whether the function determines the parameters
        reasons: array of string, why not, or what is open
        generic: boolean?, whether the parameters are generic
        generic_reason: string, why
        tested: string, how that was decided
        layers: array of string, fixed, free or open""",
    "fiber": """
        kind: string, of network
        dimension: integer?, of the fiber beyond order and scale, without the neurons that were removed
        at_least: integer, dimensions of the fiber near the given weights
        at_most: integer?, dimensions of the fiber near the given weights
        freedoms: array of object, ways to move the weights (layer, what, dimension, removal)
        layers: array of string, fixed, locally fixed, free or open
        log10_orders: number, the decimal logarithm of how many orders the neurons have
        generic: boolean?, whether the weights are generic
        unknown: string, what is left open
        domain?: string?, where the function is compared
        removed: integer, neurons that were removed first
        components: integer?, of the fiber modulo order and scale
        checked: integer?, components looked at
        nonempty: integer?, of those
        linear: integer?, neurons that make the linear part
        case?: integer?, of paper 4
        samples?: array of string?, files that were written""",
    "regions": """
        regions: integer, found
        complete: boolean, whether that is all
        domain: string, where
        seconds: number, spent
        per_second: number, regions
        facets?: any, between regions
        each?: array of object, the regions themselves (--each)""",
    "bottleneck": """
        hamiltonian: any, of a Leaky ResNet
        bottleneck_rank: any, of a Leaky ResNet
        stationarity: any, of a Leaky ResNet
        coi_min: number?, the smallest cost of identity
        blocks?: array of object, dimension, movement and energy of each block
        narrowest?: string, the block of smallest effective dimension
        samples?: integer, that it was read on
        steps?: array, layer steps, or the steps of training of a folder of checkpoints
        checkpoints?: array of object, the blocks at each of them
        notes?: array of string, what carries over from Leaky ResNets""",
    "truncate": """
        classes: array of string, of the data
        sizes: array of integer, points of each
        residual: number, chain of truncations minus network, relative
        layers: array of object, what each truncates by class""",
    "separate": """
        answer: string, in words
        verdict: string, yes, no or undecided
        aligned: boolean, whether right-angled cones were asked for
        classes: array of string, of the data
        answers: array of object, per cluster, each with its evidence
        network: object?, of zero loss
        blocked: array, clusters that stand in the way""",
    "convert": """
        written: string, the file
        parameters: integer, of the network
        stored: object, type of numbers and rounding""",
    "rebalance": """
        reached?: boolean, whether the balance could be reached
        residual?: number, of the balance
        steps?: integer, of Newton's method
        unreachable?: array of string, neurons
        largest_factor?: number, by which a neuron was rescaled
        function_change?: number, relative, on random inputs
        log2_components_before?: integer, locked weights
        log2_components_after?: integer, locked weights
        written: string?, the file
        objective?: string, norm or range
        verdict?: string, whether the function is the same: equal, different or undecided
        within?: object?, what equal means
        norm?: object, of all weights before and after
        rounding?: array of object, errors of weights and outputs in 8 and 4 bits before and after
        measured_on?: string, what outputs were compared on
        sweeps?: integer, how often all spaces were visited
        notes?: array of string, what was left alone
        stored?: object, type of numbers and rounding""",
    "prune": """
        parameters_before?: integer, of the network
        parameters_after?: integer, of the smaller one
        neurons_before?: integer, hidden
        neurons_after?: integer, hidden
        max_output_change_bound?: number?, proved for every input in the box
        bounds?: array, the same for each output
        rounding_bound?: number?, of storing folded weights
        output_range?: array?, of each output
        distance_bound?: number?, of both networks compared as a whole on the box, where it is the smaller one
        measured_change?: number?, on random inputs
        change_on_data?: number?, on the data given
        samples?: integer, random inputs
        rank?: integer, of J before
        box?: array?, for which the bound holds; null is all inputs
        verified?: boolean, replayed in rational arithmetic (--verify)
        steps?: array of object, what went, and why
        decided?: object?, of the neurons that are left: which are proved to be needed, and why others are undecided
        smallest_equivalent?: object?, bounds on the neurons that any network of this depth needs (--smallest)
        target?: string, what was asked for (--target)
        criterion?: string, how units were scored (--target)
        macs_before?: integer, multiplications a sample (--target)
        macs_after?: integer, of the smaller network (--target)
        sizes?: array of object, channels and heads of every site before and after
        calibration_samples?: integer, that units were scored and repaired on
        choosing_samples?: integer, that sizes were chosen on
        held_out?: object?, what samples that chose nothing say; a statistical statement
        latency_ms?: object, before and after, by runtime and batch
        tuned?: boolean, whether training afterwards was kept
        kinds?: object, what is exact and what statistical (--target)
        kind?: string, exact, certified or statistical (--tolerance on channels)
        tolerance?: array of number, for each output (--tolerance on channels)
        around?: number?, distance from samples within which the bound holds
        channels_before?: integer, that could leave
        channels_after?: integer, that are left
        removed?: array of object, channels with their layers and reasons
        compared?: number, largest difference of outputs on random inputs
        notes?: array of string, what was left alone
        written?: string?, the file
        stored?: object, type of numbers and rounding""",
    "canonical": """
        written: string?, the file
        regime?: string, in which the representative was made
        complete?: boolean, whether equal functions have equal representatives
        parameters_before?: integer?, of the network
        parameters_after?: integer, of the representative
        widths?: array of integer, of the representative
        objective?: string, canonical (modules)
        verdict?: string, whether the function is the same (modules)
        within?: object?, what equal means
        norm?: object, of all weights before and after
        rounding?: array of object, errors in 8 and 4 bits before and after
        measured_on?: string, what outputs were compared on
        sweeps?: integer, how often all spaces were visited
        notes?: array of string, what was left alone, ties
        stored?: object, type of numbers and rounding""",
    "flow": """
        network?: string, as it was named
        data?: string?, as it was named
        loss: string, by name
        time: number, until which the flow was followed
        parameters: integer, how many
        stop: object, why it ended, when, in words
        loss_start: number, at the start
        loss_end: number, at the end
        gradient_norm: number, at the end
        evaluations: integer, of the gradient
        kinks: object, crossed, pinned and released
        laws: integer, watched
        max_drift: number, of any of them
        out?: string?, the folder""",
    "compare": """
        time: number, until which all ran
        laws: array of string, watched
        start: array of number, their values
        sgd_order: number?, how the drift grows with the step
        adam_order: number?, how the drift grows with the step
        subtracted?: string, what drift is measured from
        optimizers: array of object, steps, loss, drift and what theory predicts
        network?: string, as it was named
        data?: string?, as it was named""",
    "drift": """
        drift: array of object, each law at the start, at the end, and its largest drift
        max_drift: number, of any of them
        rank: object?, of J at the start, at the end, at least
        singular_values: object?, of J at the start and at the end
        locked: array of object?, weights that cannot change sign, and whether they did not
        times: array of number, of the snapshots
        losses: array of number, at these times
        stop: object, why the run ended""",
    "truncation-flow": """
        classes?: array of string, of the data
        times?: array of number, recorded
        costs?: array of number, at these times
        truncated?: array, points of each class, at these times
        sign_changes?: object, how often a coordinate was truncated, released or held
        rounded?: array, stretches of time in which jumps of the velocity were rounded off
        halted?: string?, why the run ended early
        coordinates?: array, closed-form times (--fixed)
        case?: string, of --standard""",
    "leaky": """
        out: string, the folder
        networks: array of object, cost and stationarity per effective depth
        converged: boolean, whether all are geodesics
        spread?: array of object, mean and standard deviation of the cost over seeds""",
    "verify": """
        valid: boolean, whether every fact was confirmed
        kind: string?, of certificate
        statement: string?, what was proved, composed from checked facts
        facts?: object, of which the statement is made
        networks?: array of string, digests
        given?: array of integer, which of them each network given is
        reason: string?, the first fact that fails""",
    "reproduce": """
        claims: array of object, statement, criterion, size, verdict, what was measured, any erratum""",
    "demo": """
        verdict: string, whether the network before and after pruning is one function
        method: string, how that was proved
        steps: array of object, each step of the conversion: its command, its verdict, what its certificate proves
        wrong: array of integer, numbers of the steps that changed the network
        input: array of number, an image that proves the first of them
        read_as: array of integer, the digit that is seen in it before and after that step
        difference: array of number, bounds of how far the outputs for it are apart
        channels: array of integer, before and after pruning
        parameters: array of integer, before and after pruning
        accuracy: array of number, on unseen digits: trained, after the wrong step, pruned
        audit: object, as of `lawful audit`
        verified: string, what the verifier said of the pruning
        page: string, the audit's page
        story: string, the page of the conversion
        certificate: string, of the pruning""",
    "sweep": """
        planned?: integer, calls
        finished?: integer, calls
        failed: integer, calls
        seconds?: number, of work
        digest?: string, of all results but durations
        results?: string, the table
        report?: string, the page
        exceptions?: integer, answers that are not the predicted ones""",
    "fingerprint": """
        files?: array of object, each network's hash and how much it means
        groups?: array of array, names of equal functions
        distinct?: integer, functions
        index?: string, with --index the file that holds the sketches
        added?: integer, checkpoints new in the index
        kept?: integer, checkpoints that were there
        unread?: array of object, checkpoints that could not be read, and why""",
    "align": """
        written: string?, the file with B in A's place
        before: number, distance of B from A relative to A
        after: number, the same after alignment
        passes: integer?, rounds after which nothing changed places any more, or null
        fits: boolean, whether B is A up to the rounding of stored numbers
        conditioning: number, of the matrices that were used
        tensors?: array of object, what is left of each tensor
        spaces?: array of string, what may be moved, space by space
        folds?: array of string, what was folded first
        notes?: array of string, what was not used""",
    "find": """
        relatives: array of object, path, likeness (1: the same up to symmetries, about 0: strangers), identical
        compared: integer, checkpoints of the same architecture
        indexed: integer, checkpoints in the index
        calibrated: boolean, whether enough others were there to take away what all have in common""",
    "merge": """
        weight: number, the share of B
        distance_before: number, of B from A relative to A
        distance_after: number, the same after alignment
        line: object?, with --data the loss on the way from A to B, as B is and aligned, and the barriers
        out: string?, the file that was written""",
}  # fmt: skip
