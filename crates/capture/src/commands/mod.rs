//! Effects of shell commands: the commits that a command made, and the files that it removed.

pub mod commits;
mod removals;

pub use self::{
    commits::{HeadLog, Ran, may_tell_commits},
    removals::removed,
};

fn is_keyword(word: &str) -> bool {
    matches!(word, "then" | "do" | "else" | "sudo")
}

/// A word; none where only the shell knows what it stands for.
type Word = Option<String>;

/// The words of each command in a line, up to what would need a shell to take apart.
fn simple_commands(command: &str) -> Vec<Vec<Word>> {
    let (mut commands, mut words) = (Vec::new(), Vec::new());
    let mut characters = command.chars().peekable();
    // The word being read, and whether it stands for itself.
    let (mut word, mut is_plain) = (None::<String>, true);
    let mut quote = None;
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (Some('\''), other) => word.get_or_insert_default().push(other),
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (_, '\\') => word.get_or_insert_default().extend(characters.next().filter(|next| *next != '\n')),
            (_, '$' | '`') | (None, '*' | '?' | '[' | '{' | '~') => {
                is_plain = false;
                word.get_or_insert_default();
            }
            (None, '(' | ')') => break,
            (None, '<') if characters.peek() == Some(&'<') => break,
            (None, '#') if word.is_none() => while characters.next_if(|next| *next != '\n').is_some() {},
            (None, space_or_end) if " \t\n;&|<>".contains(space_or_end) => {
                words.extend(word.take().map(|word| std::mem::replace(&mut is_plain, true).then_some(word)));
                if !" \t".contains(space_or_end) {
                    commands.push(std::mem::take(&mut words));
                }
            }
            (_, other) => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word.map(|word| is_plain.then_some(word)));
    commands.push(words);
    commands
}
