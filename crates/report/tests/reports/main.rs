//! Pages show what they were given, and nothing else.

mod drawn;
mod made_up;
mod outside_text_stays_text;
mod pages_render_in_a_browser;
mod plots_hold_their_values;
