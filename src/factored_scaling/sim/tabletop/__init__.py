"""A small manipulation world, written in torch and vectorised over environments.

It is small so that a study's whole loop (collect, train, roll out, fit, collect again) takes minutes on a CPU.
Nothing here is calibrated against a real robot. Contact is reduced to rules: the gripper takes the object if it closes
near enough, and lets it go where it opens; a hand that comes too near pushes the puck along.

The arm
    Three revolute joints sweep a plane above the table; a quill moves up and down; a gripper opens and closes.
    State: the three angles (rad), the height of the fingertips (m), the opening (0 to 1). Action: a target for each of
    them, absolute; a joint moves towards it by at most `arm.RATE_LIMIT` per control step. Demonstrations take 33
    control steps, a rollout ends after 56.

The cameras
    A third-person camera across the table from the robot, rendered by `render.py` (one ray per pixel, hard shadows from
    one directional light), 48 × 48 pixels by default. `tabletop/insert` has a second one on the wrist,
    which `camera_pose` does not move.

Tasks
    `tabletop/pick-place`: put the red ball on the plate. Success: it is let go with its centre within 5 cm of the
    plate's, from no higher than 12 cm above it. Factors: the five visual ones.
    `tabletop/insert`: put the blue peg into the slot of the yellow block. Success: it is let go within 3 cm of the
    slot's centre, from no higher than 7 cm. Factors: all eight.
    `tabletop/push`: push the green puck onto the plate. Success: its centre is within 3.2 cm of the plate's and the
    fingers are above it. Factors: three visual and two spatial ones.
    A trial scores 1 or 0; it ends at success, or when the object was dropped from too high.

What is randomised
    Always: where the object and its destination stand, and a little of the arm's start. Beyond that at most one factor:

    ==============  ==================================================================================
    camera_pose     azimuth, elevation, distance and sideways shift of the third-person camera
    distractor      two more things on the table, a round one and a box: four sets
    table_texture   colours and pattern of the table: four
    lighting        direction (and with it the shadows), warm or cool colour, brightness
    background      colours and pattern of wall and floor: four
    table_height    the table and everything on it, up or down
    object_pose     the object's range widened by a quarter
    robot_pose      the arm's initial joint positions and height
    ==============  ==================================================================================

    Four values (or a uniform range) serve for training; ten more settings per factor are held out for evaluation and
    never occur in training. `object_pose` is tested in the rim that the widening adds.

How it was tuned
    Ranges, colours and tolerances were chosen by hand, with the `small` diffusion policy (1,000 updates, 30
    demonstrations per factor), until a study has something to find. Success over the held-out settings (500 trials for
    pick-place, 800 for insert) with everything, and without one group's demonstrations:

    =========================  ==================  ==================  ==============
    trained without            pick-place, seed 0  pick-place, seed 1  insert, seed 0
    =========================  ==================  ==================  ==============
    nothing (all demos)        0.73                0.74                0.72
    camera_pose, distractor    0.68                0.68                0.72
    table_texture, lighting    0.60                0.63                0.64
    background                 0.77                0.73                —
    background, table_height   —                   —                   0.67
    object_pose, robot_pose    —                   —                   0.72
    =========================  ==================  ==================  ==============

    Demonstrations of table texture and lighting help most, those of the background hardly. A real robot may differ.

The same `DemoRequest` gives the same episode to the bit and the same `Condition` the same first frame, whatever stands
beside it in the batch: all randomness comes from generators seeded by the request or condition, and the simulator uses
only operations that round the same way everywhere in a batch.
"""

from __future__ import annotations

from factored_scaling.sim.tabletop.task import TabletopTask, make_task

__all__ = ["TabletopTask", "make_task"]
